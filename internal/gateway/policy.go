package gateway

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// policy is a BackendTLSPolicy for one of its targets.
type policy struct {
	object   *gatewayv1.BackendTLSPolicy
	port     string // name of the service's port; empty: all
	trust    *route.Trust
	lost     *fault // to another policy
	accepted *fault
	resolved *fault
	gateways map[string]bool // that send to the service
}

// allPolicies reads the policies, the older ones first.
func (c *compiler) allPolicies() {
	for _, o := range ordered(c.o.Policies) {
		trust, accepted, resolved := c.trust(o)
		for _, t := range o.Spec.TargetRefs {
			if !core(&t.Group) || t.Kind != "Service" {
				continue
			}
			key := o.Namespace + "/" + string(t.Name)
			p := &policy{object: o, port: string(ptr.Deref(t.SectionName, "")), trust: trust, accepted: accepted, resolved: resolved, gateways: map[string]bool{}}
			for _, before := range c.policies[key] {
				if before.lost == nil && before.port == p.port && before.object != o {
					p.lost = faultf(gatewayv1.PolicyReasonConflicted, "BackendTLSPolicy %q is for the same Service", before.object.Name)
				}
			}
			c.policies[key] = append(c.policies[key], p)
		}
	}
}

// trust is how a policy wants a backend known; nil: it cannot be.
func (c *compiler) trust(o *gatewayv1.BackendTLSPolicy) (out *route.Trust, accepted, resolved *fault) {
	v := &o.Spec.Validation
	out = &route.Trust{Name: string(v.Hostname)}
	for i := range v.SubjectAltNames {
		switch s := &v.SubjectAltNames[i]; s.Type {
		case gatewayv1.HostnameSubjectAltNameType:
			out.Hosts = append(out.Hosts, string(s.Hostname))
		case gatewayv1.URISubjectAltNameType:
			out.URIs = append(out.URIs, string(s.URI))
		}
	}
	if len(v.CACertificateRefs) == 0 {
		if w := ptr.Deref(v.WellKnownCACertificates, ""); w != gatewayv1.WellKnownCACertificatesSystem {
			return nil, faultf(gatewayv1.PolicyReasonInvalid, "validation.wellKnownCACertificates %q is not known here: System is", w), nil
		}
		return out, nil, nil
	}
	for _, r := range v.CACertificateRefs {
		if !core(&r.Group) || r.Kind != "ConfigMap" {
			if resolved == nil {
				resolved = faultf(gatewayv1.BackendTLSPolicyReasonInvalidKind, "certificates of authorities are in a ConfigMap, not in a %s", r.Kind)
			}
			continue
		}
		pem, why := c.authorities(o.Namespace, string(r.Name))
		if why != "" {
			if resolved == nil {
				resolved = faultf(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "%s", why)
			}
			continue
		}
		out.Authorities = append(out.Authorities, pem...)
	}
	if len(out.Authorities) == 0 {
		return nil, faultf(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "it has no certificate of an authority by which the backend is known"), resolved
	}
	return out, nil, resolved
}

// policyFor is the policy for a port of a service: one for the port goes before one for all. The Gateways of those
// that lost are those of who won.
func (c *compiler) policyFor(svc *corev1.Service, port *corev1.ServicePort) *policy {
	var all *policy
	for _, p := range c.policies[svc.Namespace+"/"+svc.Name] {
		switch {
		case p.lost != nil:
		case p.port == port.Name && p.port != "":
			return p
		case p.port == "":
			all = p
		}
	}
	return all
}

// ancestors says to policies what has become of them, by the Gateways that send to their services.
func (c *compiler) ancestors() {
	type verdict struct{ accepted, resolved *fault }
	by := map[*gatewayv1.BackendTLSPolicy]map[string]verdict{}
	for _, list := range c.policies {
		reached := map[string]bool{}
		for _, p := range list {
			maps.Copy(reached, p.gateways)
		}
		for _, p := range list {
			if by[p.object] == nil {
				by[p.object] = map[string]verdict{}
			}
			for g := range reached {
				v := verdict{p.accepted, p.resolved}
				if v.accepted == nil {
					v.accepted = p.lost
				}
				if old, there := by[p.object][g]; !there || old.accepted != nil {
					by[p.object][g] = v
				}
			}
		}
	}
	for o, gateways := range by {
		for _, key := range slices.Sorted(maps.Keys(gateways)) {
			g, v := c.gateways[key].object, gateways[key]
			s := conditions{generation: o.Generation}
			unless(&s, v.accepted, gatewayv1.PolicyConditionAccepted, gatewayv1.PolicyReasonAccepted)
			unless(&s, v.resolved, gatewayv1.BackendTLSPolicyConditionResolvedRefs, gatewayv1.BackendTLSPolicyReasonResolvedRefs)
			c.out.Policies[Key(o)] = append(c.out.Policies[Key(o)], gatewayv1.PolicyAncestorStatus{
				AncestorRef: gatewayv1.ParentReference{
					Group: ptr.To(gatewayv1.Group(Group)), Kind: ptr.To(gatewayv1.Kind("Gateway")),
					Namespace: ptr.To(gatewayv1.Namespace(g.Namespace)), Name: gatewayv1.ObjectName(g.Name),
				},
				ControllerName: ControllerName, Conditions: s.list,
			})
		}
		if list := c.out.Policies[Key(o)]; len(list) > mostAncestors {
			c.out.Policies[Key(o)] = list[:mostAncestors]
		}
	}
}

// mostAncestors is how many a policy's status may have.
const mostAncestors = 16
