package image

import (
	"cmp"
	"encoding/base64"
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
)

// Keyring is a set of registry credentials, as in a .docker/config.json. A nil
// keyring is empty.
type Keyring struct {
	entries []entry
}

type entry struct {
	host, path string // host may have * in its parts; path is a prefix
	auth       *runtimeapi.AuthConfig
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
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		return k.AddConfig(s.Data[v1.DockerConfigJsonKey])
	case v1.SecretTypeDockercfg:
		return k.AddLegacy(s.Data[v1.DockerConfigKey])
	}
	return nil
}

// AddConfig adds the auths of a config.json; the rest of it does not count.
func (k *Keyring) AddConfig(data []byte) error {
	var c struct {
		Auths map[string]dockerAuth `json:"auths"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("parse docker config: %w", err)
	}
	return k.add(c.Auths)
}

// AddLegacy adds the entries of a .dockercfg.
func (k *Keyring) AddLegacy(data []byte) error {
	var auths map[string]dockerAuth
	if err := json.Unmarshal(data, &auths); err != nil {
		return fmt.Errorf("parse dockercfg: %w", err)
	}
	return k.add(auths)
}

func (k *Keyring) add(auths map[string]dockerAuth) error {
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
		e := entry{auth: out}
		e.host, e.path = splitRegistry(registry)
		k.entries = append(k.entries, e)
	}
	slices.SortStableFunc(k.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(b.host+b.path, a.host+a.path))
	})
	return nil
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
func (k *Keyring) Lookup(image string) []*runtimeapi.AuthConfig {
	if k == nil {
		return nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	host, repository := reference.Domain(named), "/"+reference.Path(named)
	var out []*runtimeapi.AuthConfig
	for _, e := range k.entries {
		if hostMatches(e.host, host) && strings.HasPrefix(repository, e.path) {
			out = append(out, e.auth)
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
