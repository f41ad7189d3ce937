package discovery

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
)

// Others are the group-versions that other servers have. They are read-only.
type Others struct{ Versions []Remote }

// Remote is a group-version that another server has.
type Remote struct {
	schema.GroupVersion
	Priority  apiregistration.Priority
	Resources []apidiscovery.APIResourceDiscovery
	// Stale says that the other server cannot be asked at present: the resources are those of before.
	Stale bool
	// Document is where the OpenAPI document, version 3, is read; empty: there is none.
	Document string
	// Swagger is its part of the OpenAPI document, version 2, as package openapi has made it; nil: it has none.
	Swagger []byte
}

// Equal reports whether both say the same. Either may be nil.
func (o *Others) Equal(other *Others) bool { return reflect.DeepEqual(o, other) }

// HasGroup reports whether others have a version of a group. The Others may be nil.
func (o *Others) HasGroup(group string) bool {
	return o != nil && slices.ContainsFunc(o.Versions, func(r Remote) bool { return r.Group == group })
}

// Yields reports a group that is not served here while others have a version of it: a client that finds two
// versions takes them for the same objects.
func (d *Docs) Yields(group string, o *Others) bool { return d.Computed[group] && o.HasGroup(group) }

// String is the group-version.
func (r *Remote) String() string { return r.GroupVersion.String() }

// versioned is a version of a group, with where it stands among the others.
type versioned struct {
	apidiscovery.APIVersionDiscovery
	priority apiregistration.Priority
}

// With returns the documents of what is served here and by others: what others have takes the place of
// what there is here, of a group that is computed here all. What each of those documents is made of is shared with d.
func (d *Docs) With(o *Others) *Docs {
	groups := map[string][]versioned{}
	var gone []schema.GroupVersion
	for i := range d.Named.Items {
		g := &d.Named.Items[i]
		yields := d.Yields(g.Name, o)
		for _, v := range g.Versions {
			if yields {
				gone = append(gone, schema.GroupVersion{Group: g.Name, Version: v.Version})
				continue
			}
			groups[g.Name] = append(groups[g.Name], versioned{v, apiregistration.PriorityOf(schema.GroupVersion{Group: g.Name, Version: v.Version})})
		}
	}
	all := &Docs{
		Groups: &metav1.APIGroupList{}, ByGroup: map[string]*metav1.APIGroup{}, Resources: maps.Clone(d.Resources),
		Core: d.Core, Named: &apidiscovery.APIGroupDiscoveryList{},
	}
	for _, gv := range gone {
		delete(all.Resources, gv)
	}
	for _, r := range o.Versions {
		v := versioned{apidiscovery.APIVersionDiscovery{Version: r.Version, Resources: r.Resources, Freshness: apidiscovery.DiscoveryFreshnessCurrent}, r.Priority}
		if r.Stale {
			v.Freshness = apidiscovery.DiscoveryFreshnessStale
		}
		groups[r.Group] = append(slices.DeleteFunc(groups[r.Group], func(own versioned) bool { return own.Version == r.Version }), v)
		delete(all.Resources, r.GroupVersion)
	}
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(highest(groups[b]), highest(groups[a])), strings.Compare(a, b))
	})
	for _, name := range names {
		all.add(name, groups[name])
	}
	return all
}

// highest is where a group stands: where its first version does.
func highest(versions []versioned) (p int32) {
	for i := range versions {
		p = max(p, versions[i].priority.Group)
	}
	return p
}

// add adds a group to the documents.
func (d *Docs) add(name string, versions []versioned) {
	slices.SortFunc(versions, func(a, b versioned) int {
		return cmp.Or(cmp.Compare(b.priority.Version, a.priority.Version), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	aggregated := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v.Version, Version: v.Version})
		aggregated.Versions = append(aggregated.Versions, v.APIVersionDiscovery)
	}
	group.PreferredVersion = group.Versions[0]
	d.ByGroup[name] = &group
	d.Groups.Groups = append(d.Groups.Groups, group)
	d.Named.Items = append(d.Named.Items, aggregated)
}

// Aggregated is the document of a group-version in the form in which all are told of at once. Of
// subresources it has those whose resource is in the document as well.
func Aggregated(list *metav1.APIResourceList) []apidiscovery.APIResourceDiscovery {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return nil
	}
	kindOf := func(r *metav1.APIResource) *metav1.GroupVersionKind {
		return &metav1.GroupVersionKind{Group: cmp.Or(r.Group, gv.Group), Version: cmp.Or(r.Version, gv.Version), Kind: r.Kind}
	}
	var out []apidiscovery.APIResourceDiscovery
	at := map[string]int{}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		if _, again := at[r.Name]; again || r.Name == "" || strings.Contains(r.Name, "/") {
			continue
		}
		at[r.Name] = len(out)
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		out = append(out, apidiscovery.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: kindOf(r), Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		name, sub, _ := strings.Cut(r.Name, "/")
		if parent, ok := at[name]; ok && sub != "" {
			out[parent].Subresources = append(out[parent].Subresources, apidiscovery.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: kindOf(r), Verbs: r.Verbs,
			})
		}
	}
	return out
}
