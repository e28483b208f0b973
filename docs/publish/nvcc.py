"""The line that compiles a stage's kernel without `lab`. tests/all.sh runs such lines in a folder of stages/ alone."""

from blocks import block


@block("nvcc")
def nvcc(_, page, __):
    """A kernel with instructions of one GPU is compiled for that one; any other for the oldest that has bf16."""
    if not page.stage:
        return None
    needed = page.stage.capability  # "9.0"
    architecture = f"sm_{needed.replace('.', '')}a" if needed else "sm_80"
    return ("One line compiles the kernel with CUDA and the headers of `stages/`, and nothing else of this repository. ptxas\n"
            "says what each instance takes of registers and shared memory, and whether it spills:\n\n"
            f"```sh\nnvcc -std=c++20 -arch={architecture} -I. -DLADDER_BACKEND=gpu -Xptxas -v -cubin -o kernel.cubin \\\n"
            f"    stages/{page.stage.folder}/kernel.cu\n```\n")
