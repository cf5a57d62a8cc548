// A server of MCP's TypeScript SDK with the authorization server that it brings: tests/e2e/test_mcp_typescript.py.
// Every request needs the scope "read", and a call of the tool "close" the scope "write" too.

import { randomUUID } from "node:crypto";

import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { getOAuthProtectedResourceMetadataUrl, mcpAuthRouter } from "@modelcontextprotocol/sdk/server/auth/router.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";

const clients = new Map();
const codes = new Map();
const living = new Map();

function tokens(client, scopes) {
  const made = { access_token: randomUUID(), refresh_token: randomUUID() };
  living.set(made.access_token, { client, scopes });
  living.set(made.refresh_token, { client, scopes });
  return { ...made, token_type: "bearer", expires_in: 3600, scope: scopes.join(" ") };
}

const provider = {
  clientsStore: {
    getClient: (id) => clients.get(id),
    registerClient: (client) => (clients.set(client.client_id, client), client),
  },
  async authorize(client, params, response) {
    const code = randomUUID();
    codes.set(code, params);
    const back = new URL(params.redirectUri);
    back.searchParams.set("code", code);
    back.searchParams.set("state", params.state);
    response.redirect(back.href);
  },
  async challengeForAuthorizationCode(client, code) {
    return codes.get(code).codeChallenge;
  },
  async exchangeAuthorizationCode(client, code) {
    return tokens(client.client_id, codes.get(code).scopes ?? []);
  },
  async exchangeRefreshToken(client, refresh) {
    const { scopes } = living.get(refresh);
    living.delete(refresh);
    return tokens(client.client_id, scopes);
  },
  async verifyAccessToken(token) {
    const { client, scopes } = living.get(token);
    return { token, clientId: client, scopes, expiresAt: Date.now() / 1000 + 3600 };
  },
  async revokeToken(client, { token }) {
    living.delete(token);
  },
};

function server() {
  const made = new McpServer({ name: "tickets", version: "1" });
  for (const name of ["list", "close"]) {
    made.registerTool(name, { description: name }, async () => ({ content: [{ type: "text", text: `${name}: done` }] }));
  }
  return made;
}

const app = express();
app.use(express.json());
const listener = app.listen(0, "127.0.0.1", () => {
  const base = new URL(`http://127.0.0.1:${listener.address().port}`);
  const url = new URL("/mcp", base);
  app.use(mcpAuthRouter({ provider, issuerUrl: base, resourceServerUrl: url, scopesSupported: ["read", "write"] }));
  const resourceMetadataUrl = getOAuthProtectedResourceMetadataUrl(url);
  const guard = (requiredScopes) => requireBearerAuth({ verifier: provider, requiredScopes, resourceMetadataUrl });
  const [all, closing] = [guard(["read"]), guard(["read", "write"])];
  app.post("/mcp", (request, response, next) =>
    (request.body.params?.name === "close" ? closing : all)(request, response, next),
  );
  app.post("/mcp", async (request, response) => {
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
    await server().connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  app.get("/kept", (_, response) => response.json({ clients: clients.size, tokens: living.size }));
  app.post("/forget", (_, response) => (clients.clear(), response.json({})));
  console.log(url.href);
});
