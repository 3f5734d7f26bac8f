// A real OpenID Connect provider for tests: `node provider.js DIR CERT KEY REDIRECT_URI`, with its packages in DIR.
// Anybody can log in, with any password; whoever is called admin is one. Prints the URL of the issuer once it is ready.
import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [dir, cert, key, redirectUri] = process.argv.slice(2)
const { Provider } = await import(pathToFileURL(join(dir, 'node_modules/oidc-provider/lib/index.js')))

const signing = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }),
  alg,
  use: 'sig',
  kid: alg,
})
const client = (id, alg) => ({
  client_id: id,
  application_type: 'native',
  redirect_uris: [redirectUri],
  response_types: ['code'],
  grant_types: ['authorization_code'],
  token_endpoint_auth_method: 'none',
  id_token_signed_response_alg: alg,
})

const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) })
server.listen(0, '127.0.0.1', () => {
  const issuer = `https://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [client('croft', 'RS256'), client('croft-es', 'ES256'), client('other', 'RS256')],
    jwks: {
      keys: [
        signing('rsa', { modulusLength: 2048 }, 'RS256'),
        signing('ec', { namedCurve: 'P-256' }, 'ES256'),
      ],
    },
    enabledJWA: { idTokenSigningAlgValues: ['RS256', 'ES256'] },
    scopes: ['openid', 'email', 'groups'],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
    // All that was asked for is in the token, and nothing has to be fetched.
    conformIdTokenClaims: false,
    cookies: { keys: ['of this test alone'] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({
        sub: id,
        email: `${id}@example.org`,
        email_verified: true,
        groups: id === 'admin' ? ['staff', 'admins'] : ['staff'],
      }),
    }),
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
