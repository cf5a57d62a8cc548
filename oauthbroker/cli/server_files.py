"""The files of `oauthbroker init --server`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
_INSTALLED: Final = _PACKAGE / "docs" / "monitoring"
MONITORING: Final = _INSTALLED if _INSTALLED.exists() else _PACKAGE.parent / "deploy" / "monitoring"

BROKER: Final = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base} # the https address that browsers use, once other people use it
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ../store}}
  keys: {{file: ../keys/broker.kek}} # back it up, and not together with the store
"""
COMPOSE: Final = """\
# One broker and PostgreSQL. Once, before the first `docker compose up -d`, move the store into the database:
#   docker compose run --rm broker store copy store env:OAUTHBROKER_STORE_URL --cut-over
name: oauthbroker

services:
  broker:
    image: oauthbroker:{version}
    user: "{uid}:{gid}" # the owner of the folders below
    command: [serve, --config, config]
    env_file: [.env]
    environment:
      OAUTHBROKER_LISTEN_HOST: 0.0.0.0
      OAUTHBROKER_STORE_URL: postgresql://oauthbroker:${{POSTGRES_PASSWORD:?it is in .env}}@postgres/oauthbroker
    volumes:
      - ./config:/srv/oauthbroker/config:ro
      - ./keys:/srv/oauthbroker/keys:ro
      - ./store:/srv/oauthbroker/store
    ports: ["127.0.0.1:{port}:{port}"]
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    stop_grace_period: 40s # a stop answers open requests first
    restart: unless-stopped
    depends_on:
      postgres: {{condition: service_healthy}}
  postgres:
    image: postgres:17
    environment:
      POSTGRES_USER: oauthbroker
      POSTGRES_DB: oauthbroker
      POSTGRES_PASSWORD: ${{POSTGRES_PASSWORD:?it is in .env}}
    volumes:
      - database:/var/lib/postgresql/data
    healthcheck:
      test: [CMD, pg_isready, -U, oauthbroker]
      interval: 5s
      retries: 10
    stop_signal: SIGINT # a fast shutdown
    restart: unless-stopped

volumes:
  database:
"""
UNIT: Final = """\
# sudo cp oauthbroker.service /etc/systemd/system/ && sudo systemctl enable --now oauthbroker
[Unit]
After=network-online.target
Wants=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart="{python}" -m oauthbroker serve --config "{folder}/config"
ExecReload=kill -HUP $MAINPID
KillMode=mixed
TimeoutStopSec=60
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
LimitNOFILE=8192
LimitCORE=0
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths="{folder}/store"
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallFilter=@system-service
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
"""
