package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/resource"
)

// Resource is one resource as it is served at one group-version.
type Resource struct {
	Def  *resource.Def
	GVK  schema.GroupVersionKind
	Subs []*resource.SubDef
	// Second says that this is a deprecated second home of the resource. It shows
	// no short names and categories, or "kubectl get all" would list the same
	// objects twice.
	Second bool
}

// Groups are resources by group, version and plural.
type Groups map[string]map[string]map[string]Resource

// Docs is what clients are told of the resources that are served, made once. It
// is read-only.
type Docs struct {
	Groups    *metav1.APIGroupList
	ByGroup   map[string]*metav1.APIGroup
	Resources map[schema.GroupVersion]*metav1.APIResourceList
	Core      *apidiscovery.APIGroupDiscoveryList // of /api
	Named     *apidiscovery.APIGroupDiscoveryList // of /apis
	// Computed are the groups of which nothing is stored: who else has a version of one has all of it.
	Computed map[string]bool
}

// New returns the documents of what is served.
func New(groups Groups) *Docs {
	d := &Docs{
		Groups: &metav1.APIGroupList{}, ByGroup: map[string]*metav1.APIGroup{}, Resources: map[schema.GroupVersion]*metav1.APIResourceList{},
		Core: &apidiscovery.APIGroupDiscoveryList{}, Named: &apidiscovery.APIGroupDiscoveryList{}, Computed: map[string]bool{},
	}
	for _, name := range orderedGroups(groups) {
		versions := orderedVersions(groups[name])
		aggregated := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		group := metav1.APIGroup{Name: name}
		for _, v := range versions {
			gv := schema.GroupVersion{Group: name, Version: v}
			list := resourcesOf(groups[name][v])
			d.Resources[gv] = classic(gv, list)
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
			aggregated.Versions = append(aggregated.Versions, apidiscovery.APIVersionDiscovery{
				Version: v, Resources: aggregate(list), Freshness: apidiscovery.DiscoveryFreshnessCurrent,
			})
		}
		group.PreferredVersion = group.Versions[0]
		if name == "" {
			d.Core.Items = append(d.Core.Items, aggregated)
			continue
		}
		d.Computed[name] = computed(groups[name])
		d.ByGroup[name] = &group
		d.Groups.Groups = append(d.Groups.Groups, group)
		d.Named.Items = append(d.Named.Items, aggregated)
	}
	return d
}

// computed reports a group of which nothing is stored.
func computed(versions map[string]map[string]Resource) bool {
	for _, byPlural := range versions {
		for _, r := range byPlural {
			if !r.Def.Computed {
				return false
			}
		}
	}
	return true
}

// orderedGroups lists groups in the order in which they are announced: where a plural is in
// several, the first wins in kubectl.
func orderedGroups(groups Groups) []string {
	rank := func(name string) int32 { return apiregistration.PriorityOf(schema.GroupVersion{Group: name}).Group }
	return slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), strings.Compare(a, b))
	})
}

// orderedVersions lists the versions of a group, the preferred one first.
func orderedVersions(versions map[string]map[string]Resource) []string {
	return slices.SortedFunc(maps.Keys(versions), func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}

func resourcesOf(byPlural map[string]Resource) []Resource {
	list := make([]Resource, 0, len(byPlural))
	for _, plural := range slices.Sorted(maps.Keys(byPlural)) {
		list = append(list, byPlural[plural])
	}
	return list
}

// verbsOf are the verbs of a resource, in the order in which clients are used to them: of kinds that are
// known at run time only it is another one.
func verbsOf(d *resource.Def) []string {
	names := d.Verbs.Names()
	if d.Dynamic == nil {
		return names
	}
	all := []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	return slices.DeleteFunc(all, func(verb string) bool { return !slices.Contains(names, verb) })
}

// classic is the document of one group-version.
func classic(gv schema.GroupVersion, list []Resource) *metav1.APIResourceList {
	doc := &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, v := range list {
		d := v.Def
		r := metav1.APIResource{
			Name: d.Plural, SingularName: d.Singular, Namespaced: d.Namespaced, Kind: v.GVK.Kind,
			Verbs: verbsOf(d), ShortNames: v.aliases(d.Short), Categories: v.aliases(d.Categories),
		}
		if d.Stored() {
			r.StorageVersionHash = storageHash(d)
		}
		doc.APIResources = append(doc.APIResources, r)
		for _, sub := range v.Subs {
			kind := subKind(v, sub)
			r := metav1.APIResource{Name: d.Plural + "/" + sub.Name, Namespaced: d.Namespaced, Kind: kind.Kind, Verbs: sub.Verbs.Names()}
			if kind.GroupVersion() != gv {
				r.Group, r.Version = kind.Group, kind.Version
			}
			doc.APIResources = append(doc.APIResources, r)
		}
	}
	return doc
}

// aliases are the short names or categories of a resource, as this version
// shows them.
func (v Resource) aliases(names []string) []string {
	if v.Second {
		return nil
	}
	return names
}

// subKind is the kind of object that a subresource speaks.
func subKind(v Resource, sub *resource.SubDef) schema.GroupVersionKind {
	if sub.Body != nil {
		return schema.GroupVersionKind{Group: sub.Body.Group, Version: sub.Body.Version, Kind: sub.Body.Kind}
	}
	return v.GVK
}

// storageHash names the version in which objects are stored, as upstream hashes it.
func storageHash(d *resource.Def) string {
	sum := sha256.Sum256([]byte(d.Group + "/" + d.Version + "/" + d.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

func aggregate(list []Resource) []apidiscovery.APIResourceDiscovery {
	out := make([]apidiscovery.APIResourceDiscovery, 0, len(list))
	for _, v := range list {
		d := v.Def
		r := apidiscovery.APIResourceDiscovery{
			Resource: d.Plural, ResponseKind: responseKind(v.GVK), Scope: apidiscovery.ScopeCluster, SingularResource: d.Singular,
			Verbs: verbsOf(d), ShortNames: v.aliases(d.Short), Categories: v.aliases(d.Categories),
		}
		if d.Namespaced {
			r.Scope = apidiscovery.ScopeNamespace
		}
		for _, sub := range v.Subs {
			r.Subresources = append(r.Subresources, apidiscovery.APISubresourceDiscovery{
				Subresource: sub.Name, ResponseKind: responseKind(subKind(v, sub)), Verbs: sub.Verbs.Names(),
			})
		}
		out = append(out, r)
	}
	return out
}

func responseKind(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
