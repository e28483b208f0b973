# FlashInfer, if .fi is there, and the first half of FlashAttention-4
mkdir -p /tmp/p /tmp/fi /tmp/whl; [ -e .whl4/part.aa ] && cp .whl4/part.aa /tmp/p/
[ -e .fi/flashinfer.tar.xz ] && { tar xf .fi/flashinfer.tar.xz -C /tmp/fi; cp .whl/*.whl /tmp/whl/; }; ls /tmp/p /tmp/fi /tmp/whl | head; nvidia-smi --query-gpu=name --format=csv,noheader
