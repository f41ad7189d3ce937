package encryption

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/store/seal"
)

// Lengths of keys, in bytes.
var (
	aesSizes = []int{16, 24, 32}
	boxSizes = []int{32}
)

// validate says what is wrong with a configuration, in upstream's words.
func (c *configuration) validate(reload bool) (errs field.ErrorList) {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{field.Required(root, "at least one resources is required")}
	}
	plugins := map[string]bool{}
	for i, e := range c.Resources {
		r, p := root.Index(i).Child("resources"), root.Index(i).Child("providers")
		if len(e.Resources) == 0 {
			errs = append(errs, field.Required(r, fmt.Sprintf("at least one %s is required", r)))
		}
		errs = append(errs, overlaps(e.Resources, r)...)
		for j, name := range e.Resources {
			if why := badName(name); why != "" {
				errs = append(errs, field.Invalid(r.Index(j), name, why))
			}
		}
		if len(e.Providers) == 0 {
			errs = append(errs, field.Required(p, fmt.Sprintf("at least one %s is required", p)))
		}
		for j := range e.Providers {
			errs = append(errs, e.Providers[j].validate(p.Index(j), plugins, reload)...)
		}
	}
	return errs
}

// overlaps refuses resources of one list that mask each other.
func overlaps(names []string, at *field.Path) (errs field.ErrorList) {
	duplicate, overlap := false, false
	for i, name := range names {
		a := schema.ParseGroupResource(name)
		for _, other := range names[i+1:] {
			b := schema.ParseGroupResource(other)
			switch {
			case a == b:
				duplicate = true
			case a == everything || b == everything || a.Group == b.Group && (a.Resource == "*" || b.Resource == "*"):
				overlap = true
			}
		}
	}
	if duplicate {
		errs = append(errs, field.Invalid(at, names, "the same resource cannot be specified multiple times"))
	}
	if overlap {
		errs = append(errs, field.Invalid(at, names, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"))
	}
	return errs
}

// badName says why something does not name resources that can be encrypted; "": it does.
func badName(name string) string {
	gr := schema.ParseGroupResource(name)
	switch {
	case strings.ToLower(name) != name:
		return "resource name should not contain capital letters"
	case name == "*":
		return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case slices.Contains([]string{"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}, name):
		return "resources which do not have REST API/s cannot be encrypted"
	case gr.Group == "events.k8s.io":
		return "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case gr.Group == "extensions":
		return "'extensions' group has been removed and cannot be used for encryption"
	case gr.Group == "*" && gr.Resource != "*":
		return "encrypting the same resource across groups is not supported"
	}
	return ""
}

// validate checks one provider. plugins are the names of those before.
func (p *provider) validate(at *field.Path, plugins map[string]bool, reload bool) (errs field.ErrorList) {
	said := p.said()
	switch {
	case len(said) == 0:
		return field.ErrorList{field.Invalid(at, "", "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity")}
	case len(said) > 1:
		errs = append(errs, field.Invalid(at, strings.Join(said, ", "), "more than one provider specified in a single element, should split into different list elements"))
	}
	switch {
	case p.KMS != nil:
		errs = append(errs, p.KMS.validate(at.Child("kms"), plugins, reload)...)
		plugins[p.KMS.Name] = true
	case p.AESGCM != nil:
		errs = append(errs, p.AESGCM.validate(at.Child("aesgcm", "keys"), aesSizes)...)
	case p.AESCBC != nil:
		errs = append(errs, p.AESCBC.validate(at.Child("aescbc", "keys"), aesSizes)...)
	case p.Secretbox != nil:
		errs = append(errs, p.Secretbox.validate(at.Child("secretbox", "keys"), boxSizes)...)
	}
	return errs
}

// said is which fields of a provider are set.
func (p *provider) said() (names []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"kms", p.KMS != nil}, {"aesgcm", p.AESGCM != nil}, {"aescbc", p.AESCBC != nil}, {"secretbox", p.Secretbox != nil}, {"identity", p.Identity != nil}} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

func (k *keys) validate(at *field.Path, sizes []int) (errs field.ErrorList) {
	if len(k.Keys) == 0 {
		return field.ErrorList{field.Required(at, "at least one keys is required")}
	}
	for i := range k.Keys {
		one, at := &k.Keys[i], at.Index(i)
		if one.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is a mandatory field for a key"))
		}
		if one.Secret == "" {
			errs = append(errs, field.Required(at.Child("secret"), "secret is a mandatory field for a key"))
			continue
		}
		bytes, err := one.Secret.bytes()
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child("secret"), "REDACTED", "secrets must be base64 encoded"))
		case !slices.Contains(sizes, len(bytes)):
			errs = append(errs, field.Invalid(at.Child("secret"), "REDACTED", fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(bytes), sizes)))
		}
	}
	return errs
}

func (k *kms) validate(at *field.Path, plugins map[string]bool, reload bool) (errs field.ErrorList) {
	name := at.Child("name")
	switch {
	case k.Name == "":
		errs = append(errs, field.Required(name, "name is a mandatory field for a provider"))
	case k.APIVersion != "v1" && !seal.Named(k.Name):
		errs = append(errs, field.Invalid(name, k.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", k.Name)))
	}
	if plugins[k.Name] && (reload || k.APIVersion != "v1") {
		errs = append(errs, field.Invalid(name, k.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", k.Name)))
	}
	if k.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(at.Child("timeout"), k.Timeout.Duration.String(), "timeout should be a positive value"))
	}
	endpoint := at.Child("endpoint")
	u, err := url.Parse(k.Endpoint)
	switch {
	case k.Endpoint == "":
		errs = append(errs, field.Invalid(endpoint, "", "endpoint is a mandatory field for a kms"))
	case err != nil:
		errs = append(errs, field.Invalid(endpoint, k.Endpoint, fmt.Sprintf("invalid endpoint for kms provider, error: %v", err)))
	case u.Scheme != "unix":
		errs = append(errs, field.Invalid(endpoint, k.Endpoint, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)))
	}
	if size := k.CacheSize; size != nil && k.APIVersion != "v1" {
		errs = append(errs, field.Invalid(at.Child("cachesize"), *size, "cachesize is not supported in v2"))
	} else if size != nil && *size == 0 {
		errs = append(errs, field.Invalid(at.Child("cachesize"), *size, "cachesize should be a positive value, or negative to disable"))
	}
	if k.APIVersion != "v1" && k.APIVersion != "v2" {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"))
	}
	return errs
}
