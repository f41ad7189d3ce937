package plugins

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission/admissiontest"
)

// permits lets everybody do what it lists: verb, resource, subresource, namespace and name.
type permits []string

func (p permits) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := a.GetVerb() + " " + a.GetResource() + "/" + a.GetSubresource() + " " + a.GetNamespace() + "/" + a.GetName()
	for _, allowed := range p {
		if asked == allowed {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestAdministrativeAccessNeedsALabelOfTheNamespace(t *testing.T) {
	w := admissiontest.New(t, "Namespace: {metadata: {name: admins, labels: {resource.kubernetes.io/admin-access: 'true'}}}",
		"Namespace: {metadata: {name: team, labels: {resource.kubernetes.io/admin-access: 'True'}}}")
	c := only(t, w.Options(), "ResourceClaimAuthorization")
	const refused = " is invalid: %.adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	const spec = "{devices: {requests: [{name: a, exactly: {deviceClassName: c}}, {name: b, exactly: {deviceClassName: c, adminAccess: ADMIN}}]}}"
	const status = "{allocation: {devices: {results: [{request: b, adminAccess: true}]}}}"
	for _, q := range []struct{ now, old, sub, want string }{
		{now: "ResourceClaim: {metadata: {namespace: NS, name: x}, spec: " + strings.Replace(spec, "ADMIN", "true", 1) + "}",
			want: `ResourceClaim.resource.k8s.io "x"` + strings.Replace(refused, "%", "spec.devices.requests[1]", 1)},
		{now: "ResourceClaim: {metadata: {namespace: NS, name: x}, spec: " + strings.Replace(spec, "ADMIN", "false", 1) + "}"},
		{now: "ResourceClaimTemplate: {metadata: {namespace: NS, name: x}, spec: {spec: " + strings.Replace(spec, "ADMIN", "true", 1) + "}}",
			want: `ResourceClaimTemplate.resource.k8s.io "x"` + strings.Replace(refused, "%", "spec.devices.requests[1]", 1)},
		{now: "ResourceClaim: {metadata: {namespace: NS, name: x}, status: " + status + "}", old: "ResourceClaim: {metadata: {namespace: NS, name: x}}", sub: "status",
			want: `ResourceClaim.resource.k8s.io "x"` + strings.Replace(refused, "%", "status.allocation.devices.results[0]", 1)},
		{now: "ResourceClaim: {metadata: {namespace: NS, name: x}, status: " + status + "}", old: "ResourceClaim: {metadata: {namespace: NS, name: x}, status: " + status + "}", sub: "status"},
	} {
		for ns, want := range map[string]string{"team": q.want, "admins": ""} {
			a := admissiontest.Request(t, strings.Replace(q.now, "NS", ns, 1), strings.Replace(q.old, "NS", ns, 1))
			a.Sub = q.sub
			if got := admissiontest.Run(t, c, a); got != want {
				t.Errorf("%s in %s:\ngot  %s\nwant %s", q.now, ns, got, want)
			}
		}
	}
}

func TestEachPartOfAClaimsStatusHasItsWriters(t *testing.T) {
	const allocation = "allocation: {nodeSelector: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}"
	const claim = "ResourceClaim: {metadata: {namespace: team, name: x}, status: {" + allocation + "}}"
	devices := func(list string) string {
		return strings.Replace(claim, "status: {", "status: {devices: ["+list+"], ", 1)
	}
	plugin := &user.DefaultInfo{Name: "system:serviceaccount:drivers:plugin", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	const binding = `ResourceClaim.resource.k8s.io "x" is invalid: status: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: `
	const driver = `ResourceClaim.resource.k8s.io "x" is invalid: status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb=`
	for _, q := range []struct {
		name, now, old, want string
		may                  permits
		by                   user.Info
		patch                bool
	}{
		{name: "nothing", now: claim, old: claim},
		{name: "allocation", now: claim, old: "ResourceClaim: {metadata: {namespace: team, name: x}}", want: binding},
		{name: "allocation by the scheduler", now: claim, old: "ResourceClaim: {metadata: {namespace: team, name: x}}", may: permits{"update resourceclaims/binding /"}},
		{name: "allocation by patch", now: claim, old: "ResourceClaim: {metadata: {namespace: team, name: x}}", may: permits{"patch resourceclaims/binding /"}, patch: true},
		{name: "reservation", now: strings.Replace(claim, "status: {", "status: {reservedFor: [{resource: pods, name: a, uid: b}], ", 1), old: claim, want: binding},
		{name: "device", now: devices("{driver: d, pool: p, device: x}"), old: claim, want: driver + `"[arbitrary-node:update]"`},
		{name: "device by its driver", now: devices("{driver: d, pool: p, device: x}"), old: claim, may: permits{"arbitrary-node:update resourceclaims/driver team/d"}},
		{name: "device by its driver's pod on the node", now: devices("{driver: d, pool: p, device: x}"), old: claim, may: permits{"associated-node:update resourceclaims/driver team/d"}, by: plugin},
		{name: "device by its driver's pod, by patch", now: devices("{driver: d, pool: p, device: x}"), old: claim, may: permits{"associated-node:patch resourceclaims/driver team/d"}, by: plugin, patch: true},
		{name: "device by a pod on another node", now: devices("{driver: d, pool: p, device: x}"), old: claim, may: permits{"associated-node:update resourceclaims/driver team/d"},
			by: &user.DefaultInfo{Name: plugin.Name, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n2"}}}, want: driver + `"[arbitrary-node:update]"`},
		{name: "device taken away", now: claim, old: devices("{driver: d, pool: p, device: x}"), want: driver},
		{name: "device of another driver beside", now: devices("{driver: d, pool: p, device: x}, {driver: e, pool: p, device: y}"), old: devices("{driver: d, pool: p, device: x}"),
			may: permits{"arbitrary-node:update resourceclaims/driver team/e"}},
		{name: "share of a device", now: devices("{driver: d, pool: p, device: x, shareID: a}"), old: devices("{driver: d, pool: p, device: x}"), want: driver},
	} {
		o := admissiontest.New(t).Options()
		o.Authorizer = q.may
		a := admissiontest.Request(t, q.now, q.old)
		a.Sub = "status"
		if q.by != nil {
			a.User = q.by
		}
		if q.patch {
			a.Options = &metav1.PatchOptions{}
		}
		got := admissiontest.Run(t, only(t, o, "ResourceClaimAuthorization"), a)
		if !strings.HasPrefix(got, q.want) || q.want == "" && got != "" {
			t.Errorf("%s:\ngot  %s\nwant %s", q.name, got, q.want)
		}
	}
}
