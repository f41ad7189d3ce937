package parts

import (
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controllers"
)

// AuthorityFiles have the certificate and the key of an authority that signs.
type AuthorityFiles struct{ Cert, Key string }

// OwnSigner is a signer that may have an authority of its own.
type OwnSigner struct {
	Flag string // its name in flags
	Name string // and in requests
	// Field is where upstream's configuration has it.
	Field string
}

// OwnSigners are all of them.
func OwnSigners() []OwnSigner {
	return []OwnSigner{
		{"kubelet-serving", certificatesv1.KubeletServingSignerName, "KubeletServingSignerConfiguration"},
		{"kubelet-client", certificatesv1.KubeAPIServerClientKubeletSignerName, "KubeletClientSignerConfiguration"},
		{"kube-apiserver-client", certificatesv1.KubeAPIServerClientSignerName, "KubeAPIServerClientSignerConfiguration"},
		{"legacy-unknown", certificatesv1beta1.LegacyUnknownSignerName, "LegacyUnknownSignerConfiguration"},
	}
}

// checkSigning says what is wrong with the files of authorities.
func (k *ControllerKeys) checkSigning() error {
	if (k.Signing.Cert == "") != (k.Signing.Key == "") {
		return errors.New("--cluster-signing-cert-file and --cluster-signing-key-file go together")
	}
	for _, s := range OwnSigners() {
		own := *k.Signers[s]
		switch {
		case (own.Cert == "") != (own.Key == ""):
			return fmt.Errorf("--cluster-signing-%s-cert-file and --cluster-signing-%[1]s-key-file go together", s.Flag)
		case own.Cert != "" && k.Signing.Cert != "":
			return fmt.Errorf("--cluster-signing-%s-cert-file: there is --cluster-signing-cert-file for all signers", s.Flag)
		}
	}
	return nil
}

// readSigning reads them.
func (k *ControllerKeys) readSigning(c *controllers.Options) (err error) {
	if k.Signing.Cert != "" {
		if c.Authority, err = pki.ReadAuthority(k.Signing.Cert, k.Signing.Key); err != nil {
			return fmt.Errorf("--cluster-signing-cert-file: %w", err)
		}
	}
	c.Certificates.Authorities = map[string]*pki.Authority{}
	for s, own := range k.Signers {
		if own.Cert == "" {
			continue
		}
		if c.Certificates.Authorities[s.Name], err = pki.ReadAuthority(own.Cert, own.Key); err != nil {
			return fmt.Errorf("--cluster-signing-%s-cert-file: %w", s.Flag, err)
		}
	}
	return nil
}
