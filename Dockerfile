# An image with compiled kernels, for a user without rights and a read-only root file system:
#
#   docker build -t distdual .
#   docker run --read-only --tmpfs /tmp distdual distdual quickstart --dir /tmp/first
FROM python:3.11-slim
WORKDIR /distdual
COPY pyproject.toml README.md LICENSE ./
COPY distdual distdual
COPY configs configs
COPY jobs jobs
RUN pip install --no-cache-dir .
ENV NUMBA_CACHE_DIR=/opt/distdual-kernels
RUN distdual warm-up && chmod -R a+rX /opt/distdual-kernels
RUN useradd --no-create-home --uid 10001 distdual
USER distdual
