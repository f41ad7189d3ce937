package encryption

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// configuration is the file, an EncryptionConfiguration of apiserver.config.k8s.io/v1.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []entry `json:"resources"`

	hash string // of the file
}

// entry says how some resources are stored.
type entry struct {
	Resources []string   `json:"resources"`
	Providers []provider `json:"providers"`
}

// provider is one of its fields.
type provider struct {
	AESGCM    *keys     `json:"aesgcm,omitempty"`
	AESCBC    *keys     `json:"aescbc,omitempty"`
	Secretbox *keys     `json:"secretbox,omitempty"`
	Identity  *struct{} `json:"identity,omitempty"`
	KMS       *kms      `json:"kms,omitempty"`
}

type keys struct {
	Keys []key `json:"keys"`
}

type key struct {
	Name   string `json:"name"`
	Secret secret `json:"secret"` // base64
}

// secret is shown to nobody.
type secret string

// String hides it.
func (secret) String() string { return "[REDACTED]" }

// GoString hides it.
func (secret) GoString() string { return "[REDACTED]" }

func (s secret) bytes() ([]byte, error) { return base64.StdEncoding.DecodeString(string(s)) }

type kms struct {
	APIVersion string           `json:"apiVersion"`
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"`
	Endpoint   string           `json:"endpoint"`
	Timeout    *metav1.Duration `json:"timeout,omitempty"`
}

// What a file of an API server is.
const (
	fileVersion = "apiserver.config.k8s.io/v1"
	fileKind    = "EncryptionConfiguration"
)

// kmsTimeout is how long a plugin may take that no timeout is given for.
const kmsTimeout = 3 * time.Second

// readHash is the hash of the file as it is now.
func readHash(path string) (string, []byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("error reading encryption provider configuration file %q: %w", path, err)
	}
	if len(data) == 0 {
		return "", nil, fmt.Errorf("encryption provider configuration file %q is empty", path)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data)), data, nil
}

// read reads and checks the file. reload says that it may change while it is in use.
func read(path string, reload bool) (*configuration, error) {
	hash, data, err := readHash(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", path, err)
	}
	c.hash = hash
	return c, c.validate(reload).ToAggregate()
}

// parse reads what a file says, without checking it.
func parse(data []byte) (*configuration, error) {
	c := &configuration{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, err
	}
	if c.APIVersion != fileVersion || c.Kind != fileKind {
		return nil, fmt.Errorf("it is of kind %q and apiVersion %q, want %s of %s", c.Kind, c.APIVersion, fileKind, fileVersion)
	}
	c.setDefaults()
	return c, nil
}

func (c *configuration) setDefaults() {
	for i := range c.Resources {
		for j := range c.Resources[i].Providers {
			k := c.Resources[i].Providers[j].KMS
			if k == nil {
				continue
			}
			if k.Timeout == nil {
				k.Timeout = &metav1.Duration{Duration: kmsTimeout}
			}
			if k.APIVersion == "" {
				k.APIVersion = "v1" // as ever
			}
		}
	}
}
