// Stage 68: gradients of packed documents. Key tiles begin where their documents do. Query tiles stay on the
// grid of the sequence: a block masks the rows of other documents, and adds zeros to their dQ.

#include "stages/hopper.cuh"

namespace {

using namespace ladder;

#include "stages/65_hopper_windows/range.cuh"
#include "stages/65_hopper_windows/window.cuh"
#include "stages/66_window_gradients/types.cuh"

#include "stages/66_window_gradients/gradients.cuh"
#include "stages/66_window_gradients/launch.cuh"

#include "stages/66_window_gradients/ranges.cuh"

#include "stages/66_window_gradients/documents.cuh"

using Packed = Types<Ranges<Window>, InDocuments>;

template <class T, int d>
void backward(const Problem& p) {
    launch_gradients<T, d, Packed>(p);
}

using Dims = HeadDims<64, 128>;
LADDER_STAGE(backward, Dims, .number = 68, .name = "document_gradients", .parent = 66,
             .tilings = LADDER_TILES((Tile<d>::Br, Tile<d>::Bc, depth), {128, 128, 2}, {64, 128, 2}),
             .change = "key tiles begin where documents do; query tiles stay on the grid of the sequence",
             .shows_in = "backward-packed", .pass = Pass::backward,
             .takes = {Feature::window, Feature::documents}, .repeats_exactly = false,
             .workspace_bytes = workspace_bytes<Packed>);

}  // namespace
