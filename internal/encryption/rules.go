package encryption

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store/seal"
)

// everything is all resources of all groups.
var everything = schema.GroupResource{Group: "*", Resource: "*"}

// errOldKMS is of plugins of the version before. Upstream has a gate for it, off by default.
var errOldKMS = errors.New("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead: set apiVersion: v2 of the kms provider. KMSv1 is not served here")

// spelled is a resource as the file spells it.
func spelled(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

// chains are the providers of each resource that a configuration names, wildcards included.
type chains struct {
	by      map[schema.GroupResource][]seal.Provider
	metrics *seal.Metrics
	made    sync.Map // *seal.Chain by schema.GroupResource: one for each resource that was met
}

// newChains makes the chains of a configuration. plugin makes one of its plugins.
func newChains(c *configuration, m *seal.Metrics, plugin func(*kms) (seal.Provider, error)) (*chains, error) {
	all := &chains{by: map[schema.GroupResource][]seal.Provider{}, metrics: m}
	for i := range c.Resources {
		e := &c.Resources[i]
		var providers []seal.Provider
		for j := range e.Providers {
			p, err := e.Providers[j].make(plugin)
			if err != nil {
				return nil, err
			}
			providers = append(providers, p)
		}
		for _, name := range e.Resources {
			gr := schema.ParseGroupResource(name)
			for _, by := range []schema.GroupResource{{Group: gr.Group, Resource: "*"}, everything} {
				if _, masked := all.by[by]; masked {
					return nil, fmt.Errorf("resource %q is masked by earlier rule %q", spelled(gr), spelled(by))
				}
			}
			all.by[gr] = append(all.by[gr], providers...)
		}
	}
	return all, nil
}

func (p *provider) make(plugin func(*kms) (seal.Provider, error)) (seal.Provider, error) {
	switch {
	case p.AESGCM != nil:
		return withKeys(p.AESGCM, seal.NewGCM)
	case p.AESCBC != nil:
		return withKeys(p.AESCBC, seal.NewCBC)
	case p.Secretbox != nil:
		return withKeys(p.Secretbox, seal.NewBox)
	case p.KMS != nil && p.KMS.APIVersion == "v1":
		return seal.Provider{}, errOldKMS
	case p.KMS != nil:
		return plugin(p.KMS)
	}
	return seal.Provider{}, nil
}

func withKeys(k *keys, newProvider func([]seal.Key) (seal.Provider, error)) (seal.Provider, error) {
	list := make([]seal.Key, len(k.Keys))
	for i := range k.Keys {
		bytes, err := k.Keys[i].Secret.bytes()
		if err != nil {
			return seal.Provider{}, fmt.Errorf("could not obtain secret for named key %s", k.Keys[i].Name)
		}
		list[i] = seal.Key{Name: k.Keys[i].Name, Secret: bytes}
	}
	return newProvider(list)
}

// of is the chain of a resource; nil: it is stored as it is.
func (c *chains) of(gr schema.GroupResource) *seal.Chain {
	if made, ok := c.made.Load(gr); ok {
		return made.(*seal.Chain)
	}
	var made *seal.Chain
	for _, by := range []schema.GroupResource{gr, {Group: gr.Group, Resource: "*"}, everything} {
		if p := c.by[by]; p != nil {
			made = &seal.Chain{Resource: gr.String(), Providers: p, Metrics: c.metrics}
			break
		}
	}
	stored, _ := c.made.LoadOrStore(gr, made)
	return stored.(*seal.Chain)
}

// registry is before all keys of objects.
const registry = "/registry/"

// names say of which resource the keys of the store are.
type names map[string]schema.GroupResource // by storage prefix

func newNames(defs []*resource.Def) names {
	n := names{}
	for _, d := range defs {
		if d.Stored() {
			n[d.StoragePrefix] = d.GroupResource()
		}
	}
	return n
}

// of is the resource of a key. Those of kinds that are known at run time only have group and resource in them.
func (n names) of(key string) (schema.GroupResource, bool) {
	rest, ok := strings.CutPrefix(key, registry)
	if !ok {
		return schema.GroupResource{}, false
	}
	group, tail, ok := strings.Cut(rest, "/")
	if !ok {
		return schema.GroupResource{}, false
	}
	if gr, ok := n[group]; ok {
		return gr, true
	}
	plural, _, ok := strings.Cut(tail, "/")
	if !ok {
		return schema.GroupResource{}, false
	}
	if gr, ok := n[rest[:len(group)+1+len(plural)]]; ok {
		return gr, true
	}
	return schema.GroupResource{Group: group, Resource: plural}, strings.Contains(group, ".")
}

// unknown are the resources that a configuration names in groups that are built in, and that these do not have.
func (n names) unknown(c *configuration) (list []string) {
	groups, known := map[string]bool{}, map[schema.GroupResource]bool{}
	for _, gr := range n {
		groups[gr.Group], known[gr] = true, true
	}
	for _, e := range c.Resources {
		for _, name := range e.Resources {
			if gr := schema.ParseGroupResource(name); groups[gr.Group] && !known[gr] && gr.Resource != "*" {
				list = append(list, name)
			}
		}
	}
	return list
}
