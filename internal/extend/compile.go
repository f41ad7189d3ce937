package extend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/cel/measure"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

// Converter shows objects of a definition's kind, each at any version, at one version, in their order.
type Converter func(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, objs []*custom.Object, to string) ([]*custom.Object, error)

// Source is where a compiled kind has its definition from: the newest object of the generation that was
// compiled, so that none but the one in the cache is kept.
type Source struct {
	crd     atomic.Pointer[apiextensionsv1.CustomResourceDefinition]
	measure *measure.Metrics // of its rules; nil: nobody does
}

// NewSource has a definition, which stays as it is.
func NewSource(crd *apiextensionsv1.CustomResourceDefinition) *Source {
	s := &Source{}
	s.crd.Store(crd)
	return s
}

// version is one of the definition's.
func (s *Source) version(i int) *apiextensionsv1.CustomResourceDefinitionVersion {
	return &s.crd.Load().Spec.Versions[i]
}

// Compile makes the kind of a definition whose names have been accepted. convert is asked where its
// strategy is Webhook.
func Compile(from *Source, convert Converter) custom.Kind {
	crd := from.crd.Load()
	accepted := crd.Status.AcceptedNames
	k := custom.Kind{
		Names: resource.Names{
			Group: crd.Spec.Group, Kind: accepted.Kind, ListKind: accepted.ListKind, Plural: accepted.Plural, Singular: accepted.Singular,
			Short: accepted.ShortNames, Categories: accepted.Categories, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		},
		Ending: crd.DeletionTimestamp != nil,
	}
	types := newModels(from)
	shapes := shapes(crd)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Storage {
			k.Version = v.Name
		}
		one := compileVersion(from, i, types)
		one.ID = identity(crd.UID, crd.Spec.PreserveUnknownFields, v, shapes)
		k.Versions = append(k.Versions, one)
	}
	if c := crd.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && convert != nil {
		k.Convert = func(ctx context.Context, objs []*custom.Object, to string) ([]*custom.Object, error) {
			return convert(ctx, from.crd.Load(), objs, to)
		}
	}
	k.ID = identity(crd.UID, k.Names.Kind, accepted, k.Version, crd.Spec.Conversion, crd.Spec.PreserveUnknownFields)
	return k
}

// identity tells apart definitions that say other things.
func identity(parts ...any) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, p := range parts {
		_ = e.Encode(p) // of types that have a JSON form; a hash takes all
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// shapes tells apart the schemas of all versions: what is shown of an object at one version has the
// defaults of the one that it is stored at.
func shapes(crd *apiextensionsv1.CustomResourceDefinition) string {
	if len(crd.Spec.Versions) == 1 {
		return ""
	}
	var all []any
	for i := range crd.Spec.Versions {
		all = append(all, crd.Spec.Versions[i].Name, crd.Spec.Versions[i].Schema)
	}
	return identity(all...)
}

func compileVersion(from *Source, i int, types *models) custom.Version {
	crd, v := from.crd.Load(), from.version(i)
	s := newSchema(from, i)
	out := custom.Version{
		Name: v.Name, Served: v.Served, Deprecated: deprecation(crd, v),
		Validate: s.validate, Columns: columns(v), Fields: fields(v.SelectableFields), Types: types,
		Model: func(form int) *spec.Schema { return Model(from.crd.Load(), from.version(i), Form(form)) },
	}
	if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
		out.Default, out.Malformed = s.fill, s.malformed
		if !crd.Spec.PreserveUnknownFields {
			out.Prune, out.Unknown = s.prune, s.unknown
		}
	}
	if sub := v.Subresources; sub != nil {
		out.Status = sub.Status != nil
		if sub.Scale != nil {
			out.Scale = &custom.Scale{SpecReplicas: sub.Scale.SpecReplicasPath, StatusReplicas: sub.Scale.StatusReplicasPath}
			if sub.Scale.LabelSelectorPath != nil {
				out.Scale.LabelSelector = *sub.Scale.LabelSelectorPath
			}
		}
	}
	return out
}

// deprecation is the warning that users of a version get: the definition's own, or one that names
// the best version that is not deprecated, if that is a later one.
func deprecation(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	var better []string
	for _, other := range crd.Spec.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 {
			better = append(better, other.Name)
		}
	}
	warning := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	if len(better) == 0 {
		return warning
	}
	best := slices.MaxFunc(better, version.CompareKubeAwareVersionStrings)
	return warning + fmt.Sprintf("; use %s/%s %s", crd.Spec.Group, best, crd.Spec.Names.Kind)
}
