# One image for every process of Heinzelwerk. `--build-arg AGENTS=all` adds Node and the pinned coding agents (1.1 GB), which
# only handoff workers need. Both ways end in the same account, paths and commands.
ARG PYTHON=3.12
ARG NODE=22
ARG AGENTS=none

FROM python:${PYTHON}-slim-bookworm AS build
ARG EXTRAS=anthropic,openai,mcp
WORKDIR /src
COPY . .
RUN EXTRAS="$EXTRAS" deploy/install.sh python /opt/heinzelwerk

FROM node:${NODE}-bookworm-slim AS agents
WORKDIR /src
COPY deploy deploy
RUN deploy/install.sh agents /opt/agents

FROM python:${PYTHON}-slim-bookworm AS with-agents-none
COPY deploy/install.sh /tmp/deploy/install.sh
RUN /tmp/deploy/install.sh system
COPY --from=build /opt/heinzelwerk /opt/heinzelwerk

FROM with-agents-none AS with-agents-all
COPY --from=agents /usr/local/bin/node /usr/local/bin/node
COPY --from=agents /opt/agents /opt/agents
RUN ln -s /opt/agents/bin/* /usr/local/bin/

FROM with-agents-${AGENTS} AS image
RUN useradd --uid 10001 --create-home --home-dir /var/lib/heinzelwerk heinzelwerk \
 && useradd --uid 10002 --create-home --home-dir /var/lib/handoffs handoffs
ENV PATH=/opt/heinzelwerk/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    HEINZELWERK_CONFIG=/etc/heinzelwerk/heinzelwerk.toml \
    HEINZELWERK_WORKERS__DATA=/var/lib/heinzelwerk \
    HEINZELWERK_WORKERS__LOG_FORMAT=json
# A new volume starts as what is here: the example team's documents, owned by whoever places drafts in them.
COPY --chown=heinzelwerk examples/team/documents /srv/documents
RUN chown heinzelwerk /srv/documents
COPY config/heinzelwerk.example.toml /etc/heinzelwerk/heinzelwerk.toml
WORKDIR /var/lib/heinzelwerk
USER heinzelwerk
ENTRYPOINT ["heinzelwerk"]
CMD ["--help"]
