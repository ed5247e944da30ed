package transfer

import (
	"github.com/google/go-containerregistry/pkg/authn"

	"dayone.dev/dayone/registry/credentials"
)

// Keychain lets go-containerregistry look accounts up.
type Keychain credentials.Accounts

// Resolve implements authn.Keychain: anonymous where there is no account.
func (k Keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return k.authenticator(target.String())
}

func (k Keychain) authenticator(repository string) (authn.Authenticator, error) {
	account, _, err := credentials.Accounts(k).Find(repository)
	if err != nil || account == (credentials.Account{}) {
		return authn.Anonymous, err
	}
	return authn.FromConfig(authn.AuthConfig{Username: account.Username, Password: account.Password,
		IdentityToken: account.IdentityToken, RegistryToken: account.RegistryToken}), nil
}

// authenticator is the account of an endpoint for a repository.
func (e Endpoint) authenticator(repository string) (authn.Authenticator, error) {
	if e.Username != "" {
		return &authn.Basic{Username: e.Username, Password: e.Password}, nil
	}
	accounts, err := credentials.Read(e.AuthFile)
	if err != nil {
		return nil, err
	}
	return Keychain(accounts).authenticator(repository)
}
