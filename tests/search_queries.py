"""The site's search, as a reader uses it in a browser, and what it must find."""

import re
import time


def search(browser, query):
    """What the site's search finds: the names of the pages, the best first."""
    box = browser.find("#site-search")[0]
    box.clear()
    box.send_keys(query)
    for _ in range(50):  # the first search loads the index
        links = browser.find("#site-results a")
        if links or browser.find("#site-results .none"):
            break
        time.sleep(0.1)
    return [re.search(r"([^/]*)\.html", link.get_attribute("href"))[1] for link in links]


# What newcomers typed, and more like it, with the pages of which one must be first or second.
QUERIES = {
    "epilogue": "stages_30_tma_wgmma stages_33_overlap docs_glossary", "bank conflict": "stages_21_xor_swizzle",
    "4090": "docs_results docs_send_a_recording", "why softmax max": "stages_01_flash_attention_1",
    "ldmatrix": "docs_one_mma", "swizzle": "stages_21_xor_swizzle stages_15_swizzle", "TMA": "stages_30_tma_wgmma",
    "paged": "stages_81_pages", "sliding window": "stages_60_sliding_window", "dropout": "stages_64_dropout",
    "fp8 error": "stages_70s_fp8 stages_70_fp8_products", "A100": "docs_results", "compile error": "docs_troubleshooting",
    "WSL": "docs_troubleshooting docs_course_students", "register spill": "stages_20_wide_warps",
    "occupancy": "stages_20_wide_warps", "wgmma descriptor": "docs_one_descriptor", "split-KV": "stages_06_flash_decoding",
    "how to add a stage": "docs_add_a_stage", "license": "about",
    "GQA": "stages_10_packed_gqa", "FlashAttention-3": "stages_30s_hopper", "ring attention": "stages_86_ring",
    "causal mask": "stages_05_causal_skip", "online softmax": "stages_01_flash_attention_1",
    "backward": "stages_40s_backward", "deterministic": "stages_58_deterministic", "race": "docs_how_it_runs",
    "mbarrier": "stages_26_mbarriers", "warp specialization": "stages_31_producer_warp",
    "persistent kernel": "stages_34_persistent", "KV cache": "stages_80s_serving", "install": "docs_troubleshooting",
    "JAX": "docs_python", "grading": "docs_course_instructors", "quantization": "stages_70s_fp8",
    "speculative decoding": "stages_38_split_keys", "skipping tiles": "stages_05_causal_skip",
    "multi-GPU": "stages_86s_several_gpus", "changelog": "CHANGELOG",
    "cheating": "docs_course_policies", "plagiarism": "docs_course_policies", "V100": "docs_send_a_recording"}
