package sign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containers/image/v5/signature/signer"
	"github.com/containers/image/v5/signature/sigstore"
	"github.com/google/renameio/v2"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// Files of a key in a directory of its own.
const (
	// KeyFile has the private key, encrypted as cosign does it. Mode 0600.
	KeyFile = "cosign.key"
	// PassphraseFile has the passphrase of KeyFile. Mode 0600.
	PassphraseFile = "cosign.passphrase"
	// PublicFile has the public key (PEM). It is no secret.
	PublicFile = "cosign.pub"
	// BasePolicyFile has the policy of base images beside the key in the cluster's Secret (containers-policy.json(5)).
	BasePolicyFile = "base-policy.json"
)

const (
	// maxKey bounds what is read of a key file, in bytes: one of cosign's has 700.
	maxKey = 64 << 10
	// passphraseBytes of chance make a passphrase that nobody guesses.
	passphraseBytes = 32
)

// Key signs. It is safe for concurrent use. Printing it shows no secret.
type Key struct {
	// Public is the public part.
	Public PublicKey

	private *ecdsa.PrivateKey
	// raw is the private key as it was read; passphrase decrypts it.
	raw, passphrase []byte
	// signer is the library's for images; nil before the first image.
	signer *signer.Signer
	making sync.Mutex
}

// String is the public part's fingerprint.
func (k *Key) String() string { return k.Public.Fingerprint() }

// GoString is String: nothing prints the private part.
func (k *Key) GoString() string { return k.String() }

// PublicKey is a public key in PEM.
type PublicKey []byte

// Fingerprint is SHA-256 over the key's DER form in hexadecimal, as of
// "openssl pkey -pubin -outform DER | sha256sum".
func (p PublicKey) Fingerprint() string {
	block, _ := pem.Decode(p)
	if block == nil {
		return "no key"
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

// ReadPublicKey reads a public key of the kind that Load accepts.
func ReadPublicKey(file string) (PublicKey, error) {
	raw, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	key, err := ParsePublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("read public key %s: %w", file, err)
	}
	return key, nil
}

// ParsePublicKey is ReadPublicKey for bytes. Equal keys give equal bytes, whatever stands around them.
func ParsePublicKey(raw []byte) (PublicKey, error) {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: give the public key in PEM, as cosign.pub", err)
	}
	return publicPEM(key)
}

func publicPEM(key any) (PublicKey, error) {
	of, ok := key.(*ecdsa.PublicKey)
	if !ok || of.Curve != elliptic.P256() {
		return nil, errors.New("it is no ECDSA key on P-256, the only kind that nodes and cosign must know: " +
			"make one with dayone keygen or cosign generate-key-pair")
	}
	return cryptoutils.MarshalPublicKeyToPEM(of)
}

// Load reads a private key in cosign's encrypted form: ECDSA on P-256. Other users of the host may not have rights to
// either file.
func Load(keyFile, passphraseFile string) (*Key, error) {
	passphrase, err := readSecret(passphraseFile)
	if err != nil {
		return nil, fmt.Errorf("read passphrase of signing key: %w", err)
	}
	raw, err := readSecret(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return decrypted(keyFile, raw, passphrase, passphraseFile)
}

// Parse is Load for the contents of the two files, as a Secret of the cluster has them.
func Parse(key, passphrase []byte) (*Key, error) {
	return decrypted(KeyFile, key, passphrase, PassphraseFile)
}

// decrypted is the key whose file has raw; from says where the passphrase is.
func decrypted(keyFile string, raw, passphrase []byte, from string) (*Key, error) {
	passphrase = bytes.TrimRight(passphrase, "\r\n")
	if block, _ := pem.Decode(raw); block == nil || !bytes.HasPrefix([]byte(block.Type), []byte("ENCRYPTED ")) {
		return nil, fmt.Errorf("read signing key %s: it is not encrypted as cosign does it: "+
			"make one with dayone keygen or cosign generate-key-pair, or let cosign import-key-pair encrypt yours", keyFile)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(raw, func(bool) ([]byte, error) { return passphrase, nil })
	if err != nil {
		return nil, fmt.Errorf("read signing key %s: %w: is %s the passphrase of this key?", keyFile, err, from)
	}
	k, err := keyOf(key, raw, passphrase)
	if err != nil {
		return nil, fmt.Errorf("read signing key %s: %w", keyFile, err)
	}
	return k, nil
}

// keyOf is a key that has been decrypted or made.
func keyOf(key any, raw, passphrase []byte) (*Key, error) {
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is no ECDSA key")
	}
	public, err := publicPEM(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	return &Key{Public: public, private: private, raw: raw, passphrase: passphrase}, nil
}

// signers are the library's for images. The library decrypts the key once more, which takes 0.1 s on purpose: so only
// who signs an image pays for it, and once.
func (k *Key) signers() (_ []*signer.Signer, err error) {
	k.making.Lock()
	defer k.making.Unlock()
	if k.signer != nil {
		return []*signer.Signer{k.signer}, nil
	}
	file, err := unnamed(k.raw) // the library reads the key, encrypted, from a file
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	defer file.Close()
	path := fmt.Sprintf("/dev/fd/%d", file.Fd())
	if k.signer, err = sigstore.NewSigner(sigstore.WithPrivateKeyFile(path, k.passphrase)); err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return []*signer.Signer{k.signer}, nil
}

// unnamed is a file that ends with this process, however that ends.
func unnamed(content []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "key-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart) // Linux opens /dev/fd anew, others share the offset
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readSecret refuses what others of the host may read or change.
func readSecret(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, so that other users of this host can use it: chmod 0600 %s", file,
			info.Mode().Perm(), file)
	}
	raw, err := readFile(file)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: run as its owner, or give it to this user (chown)", err)
	}
	return raw, err
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err == nil && len(raw) > maxKey {
		return nil, fmt.Errorf("%s has more than %d bytes: it is no key", file, maxKey)
	}
	return raw, err
}

// SignBlob signs bytes that are no image, as cosign sign-blob: ECDSA over their SHA-256, in base64.
func (k *Key) SignBlob(raw []byte) (string, error) {
	sum := sha256.Sum256(raw)
	signature, err := ecdsa.SignASN1(rand.Reader, k.private, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// LoadOrCreate reads the key of a directory, or makes one with a passphrase of chance. A kill at any point leaves a
// key that the next call reads, or none.
func LoadOrCreate(dir string) (k *Key, err error) {
	key, passphrase := filepath.Join(dir, KeyFile), filepath.Join(dir, PassphraseFile)
	if _, missing := os.Lstat(key); errors.Is(missing, fs.ErrNotExist) {
		k, err = create(dir)
	} else {
		k, err = Load(key, passphrase)
	}
	if err != nil {
		return nil, err
	}
	public := filepath.Join(dir, PublicFile)
	if have, err := os.ReadFile(public); err == nil && bytes.Equal(have, k.Public) {
		return k, nil
	}
	if err := renameio.WriteFile(public, k.Public, 0o644); err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	return k, nil
}

// create writes the key last: what comes before is of no use without it.
func create(dir string) (*Key, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for signing key: %w", err)
	}
	chance := make([]byte, passphraseBytes)
	rand.Read(chance) // it never fails
	passphrase := []byte(base64.RawURLEncoding.EncodeToString(chance))
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	raw, err := encryptedPEM(private, passphrase)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	err = renameio.WriteFile(filepath.Join(dir, PassphraseFile), append(slices.Clip(passphrase), '\n'), 0o600)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(dir, KeyFile), raw, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write signing key: %w", err)
	}
	return keyOf(private, raw, passphrase)
}

// cosignKey is how cosign marks its encrypted keys.
const cosignKey = "ENCRYPTED COSIGN PRIVATE KEY"

// encryptedPEM encrypts a key with a passphrase of 256 random bits. No attacker can guess it, so this uses the weakest
// key derivation that cosign reads: it takes half the time and memory.
func encryptedPEM(private *ecdsa.PrivateKey, passphrase []byte) ([]byte, error) {
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	box, err := encrypted.EncryptWithCustomKDFParameters(plain, passphrase, encrypted.Legacy)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: cosignKey, Bytes: box}), nil
}
