package transfer

import (
	"github.com/google/go-containerregistry/pkg/authn"

	"dayone.dev/dayone/registry/credentials"
)

// Keychain lets go-containerregistry look accounts up.
type Keychain credentials.Accounts

// Resolve implements authn.Keychain: anonymous where there is no account.
func (k Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	account, _, err := credentials.Accounts(k).Find(target.String())
	if err != nil || account == (credentials.Account{}) {
		return authn.Anonymous, err
	}
	return authn.FromConfig(authn.AuthConfig{Username: account.Username, Password: account.Password,
		IdentityToken: account.IdentityToken, RegistryToken: account.RegistryToken}), nil
}
