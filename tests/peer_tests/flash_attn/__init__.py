"""What that project's tests import as flash_attn: flash_ladder.flash_attn_interface."""

from flash_ladder.flash_attn_interface import *  # noqa: F403
from flash_ladder.flash_attn_interface import at_once, features_of, is_decoding, stage_of  # noqa: F401

#: What a test may ask for that no function here has, by a word in the test's name
MISSING = {"generator": "arguments of their extension", "num_splits": "arguments of their extension",
           "table_bounds": "block tables that are checked on the GPU"}
