// An authorization server that we did not write (panva's oidc-provider, certified) on a free port of 127.0.0.1.
// Reads one line of JSON from stdin, {"clients": [oidc-provider client metadata, ...]}, answers with one line of JSON
// on stdout, {"issuer": "..."}, and serves until SIGTERM, SIGINT or the end of stdin: it never outlives its parent.
// With "rotating": true refresh tokens are for offline_access only, and each of them is good for one use.
// Every request that it answered is one more line, {"route": "token", "status": 200}; what it objected to is on stderr.
// What became of grants is a line, too: {"event": "grant.success", "client": "...", "grant": "refresh_token", ...}.
// Any further line on stdin comes back as {"echo": true}: all that was answered before has been told by then. One that
// holds {"lifetime": 2} sets the seconds of the access tokens to come, {"late": 50} the milliseconds by which answers of
// the token endpoint come later than what they tell has happened; {"end": "..."} ends one access token and nothing else
// of its grant, as an administrator would (the revocation endpoint ends the refresh tokens as well).
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { Provider, errors } from 'oidc-provider';

const RESOURCE = 'https://notes.example/api';
const PEOPLE = {
  alice: { name: 'Alice Example', team: 'T111' },
  bob: { name: 'Bob Example', team: 'T111' },
  mallory: { name: 'Mallory Example', team: 'T666' },
};

// Keys of this run only. The built-in ones are published with the package.
const signingKeys = () => [
  { ...generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256' },
  { ...generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'ES256' },
];

let [lifetime, late] = [3600, 0];

// An API beside userinfo (RFC 8707). Its tokens are JWTs, so that a test can read whom they are for.
const getResourceServerInfo = (ctx, resource) => {
  if (resource !== RESOURCE) throw new errors.InvalidTarget();
  return { scope: 'notes:read', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } };
};

const configuration = ({ clients, rotating }) => ({
  clients,
  jwks: { keys: signingKeys() },
  cookies: { keys: [randomBytes(32).toString('base64url')] },
  scopes: ['openid', 'profile', 'team', 'offline_access'],
  claims: { openid: ['sub'], profile: ['name'], team: ['team'] },
  findAccount: (ctx, sub) => Object.hasOwn(PEOPLE, sub) && { accountId: sub, claims: () => ({ sub, ...PEOPLE[sub] }) },
  pkce: { required: () => true },
  ...(rotating
    ? { rotateRefreshToken: true }
    : { issueRefreshToken: (ctx, client) => client.grantTypeAllowed('refresh_token') }),
  features: {
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: { enabled: true, getResourceServerInfo },
    revocation: { enabled: true },
  },
  ttl: { AccessToken: () => lifetime, DeviceCode: 600, Grant: 3600, IdToken: 600, Interaction: 600, RefreshToken: 3600, Session: 3600 },
});

console.info = console.error; // the library's notices: stdout is for our parent
const say = (message) => console.log(JSON.stringify(message));
const complain = (event) => (ctx, error) =>
  console.error(`${event}: ${error.error ?? error.message} ${error.error_detail ?? ''}`);
const tell = (event) => ({ oidc: { client, params } }) =>
  say({ event, client: client?.clientId, grant: params?.grant_type, resource: params?.resource });
const report = async (ctx, next) => {
  await next();
  if (late && ctx.oidc?.route === 'token') await setTimeout(late);
  say({ route: ctx.oidc?.route ?? 'unknown', status: ctx.status });
};

const input = createInterface({ input: process.stdin });
const [line] = await once(input, 'line');
const server = createServer();
server.listen(0, '127.0.0.1');
await once(server, 'listening');

const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, configuration(JSON.parse(line)));
for (const event of ['authorization.error', 'device_authorization.error', 'grant.error', 'userinfo.error', 'revocation.error', 'server_error']) {
  provider.on(event, complain(event));
}
for (const event of ['grant.success', 'grant.error', 'grant.revoked']) provider.on(event, tell(event));
provider.on('refresh_token.consumed', ({ clientId }) => say({ event: 'refresh_token.consumed', client: clientId }));
provider.use(report);
server.on('request', provider.callback());

const stop = () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
};
input.on('close', stop);
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
input.on('line', async (order) => {
  const { end, ...changes } = JSON.parse(order || '{}');
  ({ lifetime = lifetime, late = late } = changes);
  if (end) await (await provider.AccessToken.find(end)).destroy();
  say({ echo: true });
});
say({ issuer });
