package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"
)

// Keyring is a set of registry credentials, as in a .docker/config.json. A nil
// keyring is empty.
type Keyring struct {
	entries []entry
}

type entry struct {
	host, path string // host may have * in its parts; path is a prefix
	credential Credential
}

// Credential is one of a keyring's, and the secret that it is of, or the service account that it was given for; where
// both are nil, it is the node's own.
type Credential struct {
	*runtimeapi.AuthConfig
	Secret  *config.ImagePullSecret
	Account *config.ImagePullServiceAccount
	Once    bool // it is good for one pod only
}

// dockerAuth is one value of auths.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// AddSecret adds the credentials of a pod's pull secret; secrets of other types
// have none.
func (k *Keyring) AddSecret(s *v1.Secret) error {
	var auths map[string]dockerAuth
	var err error
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		auths, err = parseConfig(s.Data[v1.DockerConfigJsonKey])
	case v1.SecretTypeDockercfg:
		auths, err = parseLegacy(s.Data[v1.DockerConfigKey])
	}
	if err != nil {
		return err
	}
	return k.add(auths, Credential{Secret: &config.ImagePullSecret{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}})
}

// AddConfig adds the auths of a config.json of the node.
func (k *Keyring) AddConfig(data []byte) error {
	auths, err := parseConfig(data)
	if err != nil {
		return err
	}
	return k.add(auths, Credential{})
}

// AddLegacy adds the entries of a .dockercfg of the node.
func (k *Keyring) AddLegacy(data []byte) error {
	auths, err := parseLegacy(data)
	if err != nil {
		return err
	}
	return k.add(auths, Credential{})
}

// parseConfig reads the auths of a config.json; the rest of it does not count.
func parseConfig(data []byte) (map[string]dockerAuth, error) {
	var c struct {
		Auths map[string]dockerAuth `json:"auths"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("parse docker config: %w", err)
	}
	return c.Auths, nil
}

// parseLegacy reads the entries of a .dockercfg.
func parseLegacy(data []byte) (map[string]dockerAuth, error) {
	var auths map[string]dockerAuth
	if err := json.Unmarshal(data, &auths); err != nil {
		return nil, fmt.Errorf("parse dockercfg: %w", err)
	}
	return auths, nil
}

// add adds credentials by registry; of says whose they are.
func (k *Keyring) add(auths map[string]dockerAuth, of Credential) error {
	for _, registry := range slices.Sorted(maps.Keys(auths)) {
		a := auths[registry]
		out := &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
		if a.Auth != "" {
			user, password, err := decodeAuth(a.Auth)
			if err != nil {
				return fmt.Errorf("credentials of %s: %w", registry, err)
			}
			out.Username, out.Password = user, password
		}
		e := entry{credential: of}
		e.credential.AuthConfig = out
		if of.Secret != nil {
			own := *of.Secret
			own.CredentialHash = hash(out)
			e.credential.Secret = &own
		}
		e.host, e.path = splitRegistry(registry)
		k.entries = append(k.entries, e)
	}
	slices.SortStableFunc(k.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(b.host+b.path, a.host+a.path))
	})
	return nil
}

// hash tells credentials apart without giving them away.
func hash(a *runtimeapi.AuthConfig) string {
	sum := sha256.New()
	for _, part := range []string{a.Username, a.Password, a.IdentityToken, a.RegistryToken} {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func decodeAuth(s string) (user, password string, err error) {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		if data, err = base64.RawStdEncoding.DecodeString(s); err != nil {
			return "", "", err
		}
	}
	user, password, ok := strings.Cut(string(data), ":")
	if !ok || strings.Contains(password, ":") && user == "" {
		return "", "", fmt.Errorf("auth must be user:password in base64")
	}
	return user, strings.TrimRight(password, "\x00"), nil
}

// splitRegistry reads a key of auths: a host, or a URL whose path narrows it. The
// API versions that old clients put into it do not.
func splitRegistry(key string) (host, prefix string) {
	if !strings.Contains(key, "://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil {
		return strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://"), ""
	}
	prefix = u.Path
	for _, version := range []string{"/v1/", "/v2/", "/v1", "/v2"} {
		if prefix == version || strings.HasPrefix(prefix, version) && strings.HasSuffix(version, "/") {
			prefix = strings.TrimPrefix(prefix, strings.TrimSuffix(version, "/"))
			break
		}
	}
	if prefix == "/" {
		prefix = ""
	}
	host = u.Host
	if host == "index.docker.io" {
		host = "docker.io"
	}
	return host, prefix
}

// Lookup returns the credentials that fit an image, the most specific first.
func (k *Keyring) Lookup(image string) []Credential {
	if k == nil {
		return nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	host, repository := reference.Domain(named), "/"+reference.Path(named)
	var out []Credential
	for _, e := range k.entries {
		if hostMatches(e.host, host) && strings.HasPrefix(repository, e.path) {
			out = append(out, e.credential)
		}
	}
	return out
}

// hostMatches compares part by part, with globs, and the ports exactly.
func hostMatches(pattern, host string) bool {
	pHost, pPort := splitPort(pattern)
	hHost, hPort := splitPort(host)
	ps, hs := strings.Split(pHost, "."), strings.Split(hHost, ".")
	if pPort != hPort || len(ps) != len(hs) {
		return false
	}
	for i := range ps {
		if ok, err := path.Match(ps[i], hs[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitPort(s string) (host, port string) {
	if h, p, err := net.SplitHostPort(s); err == nil {
		return h, p
	}
	return s, ""
}
