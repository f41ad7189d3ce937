package core

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Labels of secrets with the token of a service account: the day on which it was used last,
// and that from which it is refused because nobody used it.
const (
	LabelTokenLastUsed     = "kubernetes.io/legacy-token-last-used"
	LabelTokenInvalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// Secrets is confidential configuration that pods consume.
var Secrets = resource.Define(resource.Spec[*corev1.Secret]{
	Names:   resource.Names{Version: "v1", Kind: "Secret", Plural: "secrets", Namespaced: true},
	Default: defaultSecret, Prepare: prepareSecret, Validate: validateSecret, Warn: warnSecret,
	Columns: []resource.Column[*corev1.Secret]{
		{
			Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"],
			Value: func(s *corev1.Secret) any { return string(s.Type) },
		},
		{
			Name: "Data", Description: corev1.Secret{}.SwaggerDoc()["data"],
			Value: func(s *corev1.Secret) any { return int64(len(s.Data)) },
		},
	},
	Fields: map[string]func(*corev1.Secret) string{
		"type": func(s *corev1.Secret) string { return string(s.Type) },
	},
})

// defaultSecret merges the plain text that clients may write for convenience.
func defaultSecret(s *corev1.Secret) {
	check.SetIfZero(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// prepareSecret keeps the type for clients that do not say it.
func prepareSecret(s, old *corev1.Secret) {
	if old != nil && s.Type == "" {
		s.Type = old.Type
	}
}

func validateSecret(s, old *corev1.Secret, errs *resource.Errors) {
	if old != nil {
		if s.Type != old.Type {
			errs.Immutable("type", s.Type)
		}
		if old.Immutable != nil && *old.Immutable {
			const detail = "field is immutable when `immutable` is set"
			if s.Immutable == nil || !*s.Immutable {
				errs.Forbidden("immutable", detail)
			}
			if !maps.EqualFunc(s.Data, old.Data, bytes.Equal) {
				errs.Forbidden("data", detail)
			}
		}
	}
	size := 0
	for key, value := range s.Data {
		checkDataKey(errs.At("data[%s]", key), key)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs.TooLong("data", corev1.MaxSecretSize)
	}
	validateSecretType(s, errs)
}

// validateSecretType checks that a secret of a known type has what its users
// look for.
func validateSecretType(s *corev1.Secret, errs *resource.Errors) {
	has := func(key string) bool {
		_, ok := s.Data[key]
		return ok
	}
	need := func(key string) {
		if !has(key) {
			errs.At("data[%s]", key).Required("", "")
		}
	}
	needJSON := func(key string) {
		need(key)
		if !has(key) {
			return
		}
		if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
			errs.At("data[%s]", key).Invalid("", "<secret contents redacted>", err.Error())
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		// The token itself is put in later.
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs.At("metadata.annotations[%s]", corev1.ServiceAccountNameKey).Required("", "")
		}
	case corev1.SecretTypeDockercfg:
		needJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		needJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		if !has(corev1.BasicAuthUsernameKey) && !has(corev1.BasicAuthPasswordKey) {
			need(corev1.BasicAuthUsernameKey)
			need(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs.At("data[%s]", corev1.SSHAuthPrivateKey).Required("", "")
		}
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
}

// warnSecret says whether key and certificate of a TLS secret belong together.
func warnSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
