"""What the tests ask of that project's extension."""

USE_TRITON_ROCM = False


def _get_block_size_n(*_):
    """The keys of a tile, in each of which P is of the maximum so far. Here it is of that of all keys: see _signed_P()."""
    return 2**31
