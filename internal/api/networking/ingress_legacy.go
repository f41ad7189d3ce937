package networking

import (
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// ingressVersions are the versions before v1, which are alike. In them a backend is
// the name of a service with a port that is a number or a name, the default backend
// is called backend, and the type of a path may be left to who obeys it.
//
// A class is what it was: the annotation kubernetes.io/ingress.class stays one.
var ingressVersions = []resource.Version[*networkingv1.Ingress]{
	{
		Group: "networking.k8s.io", Version: "v1beta1",
		Deprecated: "networking.k8s.io/v1beta1 Ingress is deprecated in v1.19+, unavailable in v1.22+; use networking.k8s.io/v1 Ingress",
		New:        func() resource.Object { return &networkingv1beta1.Ingress{} },
		Default:    func(obj resource.Object) { defaultIngressV1beta1(obj.(*networkingv1beta1.Ingress)) },
		Validate:   validateIngressV1beta1,
		To: func(obj resource.Object) (*networkingv1.Ingress, error) {
			return ingressFromV1beta1(obj.(*networkingv1beta1.Ingress))
		},
		From: func(obj *networkingv1.Ingress) (resource.Object, error) {
			out, err := ingressToV1beta1(obj)
			if err != nil {
				return nil, err
			}
			return out, nil
		},
	},
	{
		Group: "extensions", Version: "v1beta1",
		Deprecated: "extensions/v1beta1 Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 Ingress",
		New:        func() resource.Object { return &extensionsv1beta1.Ingress{} },
		Default:    func(obj resource.Object) { defaultIngressExtensions(obj.(*extensionsv1beta1.Ingress)) },
		Validate:   validateIngressV1beta1,
		// The two have the same form.
		To: func(obj resource.Object) (*networkingv1.Ingress, error) {
			same, err := resource.Recode[*networkingv1beta1.Ingress](obj.(*extensionsv1beta1.Ingress))
			if err != nil {
				return nil, err
			}
			return ingressFromV1beta1(same)
		},
		From: func(obj *networkingv1.Ingress) (resource.Object, error) {
			same, err := ingressToV1beta1(obj)
			if err != nil {
				return nil, err
			}
			out, err := resource.Recode[*extensionsv1beta1.Ingress](same)
			if err != nil {
				return nil, err
			}
			return out, nil
		},
	},
}

var namesOfV1beta1 = fieldNames{
	defaultBackend: "backend", defaultPath: "spec.backend",
	service: "serviceName", portName: "servicePort", portNumber: "servicePort",
}

func validateIngressV1beta1(obj, old *networkingv1.Ingress, errs *resource.Errors) {
	validateIngress(obj, old, errs, namesOfV1beta1)
}

func defaultIngressV1beta1(i *networkingv1beta1.Ingress) {
	for r := range i.Spec.Rules {
		if http := i.Spec.Rules[r].HTTP; http != nil {
			for p := range http.Paths {
				if http.Paths[p].PathType == nil {
					http.Paths[p].PathType = ptr.To(networkingv1beta1.PathTypeImplementationSpecific)
				}
			}
		}
	}
}

func defaultIngressExtensions(i *extensionsv1beta1.Ingress) {
	for r := range i.Spec.Rules {
		if http := i.Spec.Rules[r].HTTP; http != nil {
			for p := range http.Paths {
				if http.Paths[p].PathType == nil {
					http.Paths[p].PathType = ptr.To(extensionsv1beta1.PathTypeImplementationSpecific)
				}
			}
		}
	}
}

func ingressFromV1beta1(in *networkingv1beta1.Ingress) (*networkingv1.Ingress, error) {
	// The backends stand under numbers that v1 does not know.
	out, err := resource.Recode[*networkingv1.Ingress](in)
	if err != nil {
		return nil, err
	}
	if b := in.Spec.Backend; b != nil {
		out.Spec.DefaultBackend = ptr.To(backendFromV1beta1(b))
	}
	for r := range in.Spec.Rules {
		if http := in.Spec.Rules[r].HTTP; http != nil {
			for p := range http.Paths {
				out.Spec.Rules[r].HTTP.Paths[p].Backend = backendFromV1beta1(&http.Paths[p].Backend)
			}
		}
	}
	return out, nil
}

func ingressToV1beta1(in *networkingv1.Ingress) (*networkingv1beta1.Ingress, error) {
	out, err := resource.Recode[*networkingv1beta1.Ingress](in)
	if err != nil {
		return nil, err
	}
	if b := in.Spec.DefaultBackend; b != nil {
		out.Spec.Backend = ptr.To(backendToV1beta1(b))
	}
	for r := range in.Spec.Rules {
		if http := in.Spec.Rules[r].HTTP; http != nil {
			for p := range http.Paths {
				out.Spec.Rules[r].HTTP.Paths[p].Backend = backendToV1beta1(&http.Paths[p].Backend)
			}
		}
	}
	return out, nil
}

func backendFromV1beta1(b *networkingv1beta1.IngressBackend) networkingv1.IngressBackend {
	out := networkingv1.IngressBackend{Resource: b.Resource.DeepCopy()}
	if b.ServiceName == "" && b.ServicePort == (intstr.IntOrString{}) {
		return out
	}
	out.Service = &networkingv1.IngressServiceBackend{Name: b.ServiceName, Port: networkingv1.ServiceBackendPort{Name: b.ServicePort.StrVal, Number: b.ServicePort.IntVal}}
	return out
}

func backendToV1beta1(b *networkingv1.IngressBackend) networkingv1beta1.IngressBackend {
	out := networkingv1beta1.IngressBackend{Resource: b.Resource.DeepCopy()}
	if s := b.Service; s != nil {
		out.ServiceName, out.ServicePort = s.Name, intstr.FromInt32(s.Port.Number)
		if s.Port.Name != "" {
			out.ServicePort = intstr.FromString(s.Port.Name)
		}
	}
	return out
}
