package ingress

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Finding is what is to be said of an Ingress.
type Finding struct {
	Ingress string `json:"ingress"`         // namespace/name
	Class   string `json:"class,omitempty"` // empty: it names none
	// Obeyed says that it is ours by its class, where it is now.
	Obeyed   bool     `json:"obeyed"`
	Problems []string `json:"problems,omitempty"` // what of it is not obeyed, or would not be
}

// Report looks at Ingresses among objects, whoever obeys them now. Kinds of which there is nothing
// at all are taken not to have been read: what Ingresses say of them is not looked at.
func Report(objects []resource.Object) (list []Finding) {
	r := &read{services: map[string]*corev1.Service{}, secrets: map[string]*corev1.Secret{}, classes: map[string]*networkingv1.IngressClass{}}
	var all []*networkingv1.Ingress
	for _, o := range objects {
		key := cache.Key(o.GetNamespace(), o.GetName())
		switch o := o.(type) {
		case *networkingv1.Ingress:
			all = append(all, o)
		case *networkingv1.IngressClass:
			r.classes[o.Name] = o
		case *corev1.Service:
			r.services[key] = o
		case *corev1.Secret:
			r.secrets[key] = o
		}
	}
	for _, i := range all {
		f := Finding{Ingress: cache.Key(i.Namespace, i.Name), Obeyed: networking.Obeyed(i, r)}
		f.Class, _ = networking.ClassOf(i)
		for _, p := range Compile(i, r).Problems {
			if p.Reason == ReasonBackend && len(r.services) == 0 || p.Reason == ReasonTLS && len(r.secrets) == 0 {
				continue
			}
			f.Problems = append(f.Problems, p.Message)
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Ingress, b.Ingress) })
	return list
}

// read are objects that were read once.
type read struct {
	classes  map[string]*networkingv1.IngressClass
	services map[string]*corev1.Service
	secrets  map[string]*corev1.Secret
}

var _ Objects = (*read)(nil)

func (r *read) Class(name string) *networkingv1.IngressClass { return r.classes[name] }

func (r *read) Default() *networkingv1.IngressClass {
	var all []*networkingv1.IngressClass
	for _, c := range r.classes {
		all = append(all, c)
	}
	return networking.DefaultClass(all)
}

func (r *read) Service(namespace, name string) *corev1.Service {
	return r.services[cache.Key(namespace, name)]
}

func (*read) Slices(string, string) []*discoveryv1.EndpointSlice { return nil }

// Secret returns one; if none was read, one that says nothing that could be wrong.
func (r *read) Secret(namespace, name string) *corev1.Secret {
	if len(r.secrets) == 0 {
		return &corev1.Secret{Data: map[string][]byte{"auth": nil, caKey: nil}}
	}
	return r.secrets[cache.Key(namespace, name)]
}
