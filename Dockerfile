# ptrun in a container, from this checkout, with the versions that the tests were run with.
#
#   docker build -t ptrun --build-arg TORCH_INDEX=ADDRESS .       for a CPU
#   docker build -t ptrun:cuda --build-arg DEVICE=cuda .          for NVIDIA GPUs
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" ptrun method=ptuning_v2 task=pocket_sentiment
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" --gpus all ptrun:cuda doctor
#   docker build -t ptrun:serve --target serve .                  the server of finished runs
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/outputs:/work/outputs:ro" ptrun:serve
#
# ADDRESS is the package index with the CPU builds of torch. Without it the image works too, but
# holds several gigabytes of CUDA libraries.
ARG DEVICE=cpu

FROM python:3.11-slim AS cpu
ENV EXTRAS=peft,serve

FROM python:3.11-slim AS cuda
ENV EXTRAS=peft,serve,gpu
# Triton compiles kernels with gcc. Debian keeps one version of it, so a pinned one would vanish.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM ${DEVICE} AS base
ARG TORCH_INDEX=""
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY conf conf
COPY ptrun ptrun
RUN pip install --no-cache-dir -c constraints.txt \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} ".[$EXTRAS]" \
    && useradd --uid 1000 --no-create-home ptrun \
    && install -d -m 1777 /work /cache
# Any user can write the caches and has a name, so that --user works. Mount /cache to keep downloads.
ENV HOME=/cache HF_HOME=/cache/huggingface USER=ptrun
WORKDIR /work
USER 1000
ENTRYPOINT ["ptrun"]

FROM base AS serve
CMD ["serve", "outputs/runs", "--watch", "--host", "0.0.0.0"]

FROM base AS ptrun
CMD ["--help"]
