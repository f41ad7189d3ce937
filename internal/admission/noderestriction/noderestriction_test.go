package noderestriction

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/trace"
)

var agent = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}

const mirrorPod = `Pod: {metadata: {namespace: team, name: x, annotations: {kubernetes.io/config.mirror: abc}, ownerReferences: [%s]}, spec: {nodeName: n1, %s}}`

func TestNodeAgentsWriteOnlyWhatIsAboutTheirNode(t *testing.T) {
	trace.Proves(t, "NODE-074")
	w := admissiontest.New(t, "Node: {metadata: {name: n1, uid: u1}}")
	c := admission.NewChain(New(w.Options()))
	const owner = "{apiVersion: v1, kind: Node, name: n1, uid: u1, controller: true}"
	mirror := func(owners, spec string) string { return fmt.Sprintf(mirrorPod, owners, spec) }
	const mine, others = "Pod: {metadata: {namespace: team, name: x, labels: {a: b}}, spec: {nodeName: n1}}", "Pod: {metadata: {namespace: team, name: x}, spec: {nodeName: n2}}"
	const held = "PersistentVolume: {metadata: {name: v, finalizers: [x.example/y, external-provisioner.volume.kubernetes.io/finalizer]}, spec: {persistentVolumeReclaimPolicy: Delete}}"
	const grows = "PersistentVolumeClaim: {metadata: {namespace: team, name: c, resourceVersion: '7', labels: {a: b}}, spec: {volumeName: v}, status: {phase: Bound, capacity: {storage: 1Gi}, allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: NodeResizePending}}}"
	const grown = "PersistentVolumeClaim: {metadata: {namespace: team, name: c, labels: {a: b}}, spec: {volumeName: v}, status: {phase: Bound, capacity: {storage: 2Gi}, conditions: [{type: NodeResizeError, status: 'True'}]}}"
	const onlySize = `persistentvolumeclaims "c" is forbidden: node "n1" is not allowed to update fields other than status.quantity and status.conditions`
	const pods = `pods "x" is forbidden: `
	for _, q := range []struct{ name, sub, now, old, want string }{
		{"mirror pod", "", mirror(owner, ""), "", ""},
		{"pod that is no mirror", "", mine, "", pods + `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		{"mirror pod for another node", "", strings.Replace(mirror(owner, ""), "nodeName: n1", "nodeName: n2", 1), "", pods + `node "n1" can only create pods with spec.nodeName set to itself`},
		{"mirror pod without owner", "", mirror("", ""), "", pods + `node "n1" can only create pods with an owner reference set to itself`},
		{"mirror pod with two owners", "", mirror(owner+", "+owner, ""), "", pods + `node "n1" can only create pods with a single owner reference set to itself`},
		{"mirror pod of another owner", "", mirror(strings.Replace(owner, "name: n1", "name: n2", 1), ""), "", pods + `node "n1" can only create pods with an owner reference set to itself`},
		{"mirror pod of no controller", "", mirror(strings.Replace(owner, ", controller: true", "", 1), ""), "", pods + `node "n1" can only create pods with a controller owner reference set to itself`},
		{"mirror pod that blocks", "", mirror(strings.Replace(owner, "controller: true", "controller: true, blockOwnerDeletion: true", 1), ""), "", pods + `node "n1" must not set blockOwnerDeletion on an owner reference`},
		{"mirror pod of an earlier node", "", mirror(strings.Replace(owner, "u1", "u0", 1), ""), "", pods + `node n1 UID mismatch: expected u0 got u1`},
		{"mirror pod with an account", "", mirror(owner, "serviceAccountName: a"), "", pods + `node "n1" can not create pods that reference a service account`},
		{"mirror pod with a secret", "", mirror(owner, "volumes: [{name: a, secret: {secretName: s}}]"), "", pods + `node "n1" can not create pods that reference secrets`},
		{"mirror pod with a config map", "", mirror(owner, "containers: [{envFrom: [{configMapRef: {name: s}}]}]"), "", pods + `node "n1" can not create pods that reference configmaps`},
		{"mirror pod with a claim", "", mirror(owner, "volumes: [{name: a, persistentVolumeClaim: {claimName: s}}]"), "", pods + `node "n1" can not create pods that reference persistentvolumeclaims`},
		{"mirror pod with a resource claim", "", mirror(owner, "resourceClaims: [{name: a, resourceClaimTemplateName: s}]"), "", pods + `node "n1" can not create pods that reference resourceclaims`},
		{"mirror pod with a secret of Cinder", "", mirror(owner, "volumes: [{name: a, cinder: {volumeID: x, secretRef: {name: s}}}]"), "", pods + `node "n1" can not create pods that reference secrets`},
		{"mirror pod with a secret for debugging", "", mirror(owner, "ephemeralContainers: [{envFrom: [{secretRef: {name: s}}]}]"), "", pods + `node "n1" can not create pods that reference secrets`},
		{"mirror pod with a trust bundle", "", mirror(owner, "volumes: [{name: a, projected: {sources: [{clusterTrustBundle: {name: s}}]}}]"), "", pods + `node "n1" can not create pods that reference clustertrustbundles`},
		{"delete of a pod on the node", "", "", mine, ""},
		{"delete of a pod elsewhere", "", "", others, pods + `node "n1" can only delete pods with spec.nodeName set to itself`},
		{"update of a pod", "", mine, mine, pods + `unexpected operation "UPDATE", node "n1" can only create and delete mirror pods`},
		{"status of a pod on the node", "status", mine, mine, ""},
		{"status of a pod elsewhere", "status", others, others, pods + `node "n1" can only update pod status for pods with spec.nodeName set to itself`},
		{"labels through the status", "status", mine, strings.Replace(mine, "a: b", "a: c", 1), pods + `node "n1" cannot update labels through pod status`},
		{"eviction of a pod on the node", "eviction", mine, mine, ""},
		{"eviction of a pod elsewhere", "eviction", others, others, pods + `node n1 can only evict pods with spec.nodeName set to itself`},
		{"binding", "binding", mine, mine, pods + `unexpected pod subresource "binding", only 'status' and 'eviction' are allowed`},

		{"new node", "", "Node: {metadata: {name: n1, labels: {kubernetes.io/hostname: n1, mine: x, example.com/y: z, node.kubernetes.io/whatever: x}}}", "", ""},
		{"new node of another name", "", "Node: {metadata: {name: n2}}", "", `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},
		{"new node with system labels", "", "Node: {metadata: {name: n1, labels: {node-restriction.kubernetes.io/trusted: x, node-role.kubernetes.io/control-plane: '', foo.k8s.io/x: y}}}", "",
			`nodes "n1" is forbidden: node "n1" is not allowed to set the following labels: foo.k8s.io/x, node-restriction.kubernetes.io/trusted, node-role.kubernetes.io/control-plane`},
		{"own node", "", "Node: {metadata: {name: n1, labels: {a: b}}}", "Node: {metadata: {name: n1}}", ""},
		{"taints of the own node", "", "Node: {metadata: {name: n1}}", "Node: {metadata: {name: n1}, spec: {taints: [{key: a}]}}", `nodes "n1" is forbidden: node "n1" is not allowed to modify taints`},
		{"owners of the own node", "", "Node: {metadata: {name: n1, ownerReferences: [{name: x}]}}", "Node: {metadata: {name: n1}}", `nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences`},
		{"system labels of the own node taken away", "", "Node: {metadata: {name: n1}}", "Node: {metadata: {name: n1, labels: {node-restriction.kubernetes.io/x: y}}}", `nodes "n1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x`},
		{"status of another node", "status", "Node: {metadata: {name: n2}}", "Node: {metadata: {name: n2}}", `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},
		{"delete of another node", "", "", "Node: {metadata: {name: n2}}", `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`},

		{"own lease", "", "Lease: {metadata: {namespace: kube-node-lease, name: n1}}", "", ""},
		{"another's lease", "", "Lease: {metadata: {namespace: kube-node-lease, name: n2}}", "", `leases.coordination.k8s.io "n2" is forbidden: can only access node lease with the same name as the requesting node`},
		{"own CSINode", "", "CSINode: {metadata: {name: n1}}", "", ""},
		{"another's CSINode", "", "CSINode: {metadata: {name: n2}}", "", `csinodes.storage.k8s.io "n2" is forbidden: can only access CSINode with the same name as the requesting node`},
		{"claims through the status", "status", strings.Replace(mine, "{nodeName: n1}}", "{nodeName: n1}, status: {resourceClaimStatuses: [{name: a, resourceClaimName: b}]}}", 1), mine,
			pods + `node "n1" cannot update resource claim statuses`},
		{"claim of extended resources through the status", "status", strings.Replace(mine, "{nodeName: n1}}", "{nodeName: n1}, status: {extendedResourceClaimStatus: {resourceClaimName: b}}}", 1), mine,
			pods + `node "n1" cannot update extended resource claim status`},
		{"own slice", "", "ResourceSlice: {metadata: {name: s}, spec: {nodeName: n1}}", "", ""},
		{"another's slice", "", "ResourceSlice: {metadata: {name: s}, spec: {nodeName: n2}}", "", `resourceslices.resource.k8s.io "s" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node`},
		{"delete of a slice of all nodes", "", "", "ResourceSlice: {metadata: {name: s}, spec: {allNodes: true}}", `resourceslices.resource.k8s.io "s" is forbidden: can only delete ResourceSlice with the same NodeName as the requesting node`},
		{"volume that it has erased", "", strings.Replace(held, ", external-provisioner.volume.kubernetes.io/finalizer", "", 1), held, ""},
		{"volume without its other finalizer", "", strings.Replace(held, "x.example/y, ", "", 1), held, `persistentvolumes "v" is forbidden: node "n1" can only remove the finalizer external-provisioner.volume.kubernetes.io/finalizer of volumes`},
		{"volume that is to be kept now", "", strings.Replace(strings.Replace(held, ", external-provisioner.volume.kubernetes.io/finalizer", "", 1), "Delete", "Retain", 1), held,
			`persistentvolumes "v" is forbidden: node "n1" can only remove the finalizer external-provisioner.volume.kubernetes.io/finalizer of volumes`},
		{"delete of a volume", "", "", held, ""},
		{"claim that has grown", "status", grown, grows, ""},
		{"claim that is lost", "status", strings.Replace(grown, "Bound", "Lost", 1), grows, onlySize},
		{"labels of a claim through the status", "status", strings.Replace(grown, "a: b", "a: c", 1), grows, onlySize},
		{"volume of a claim through the status", "status", strings.Replace(grown, "volumeName: v", "volumeName: w", 1), grows, onlySize},
		{"claim itself", "", grown, grows, `persistentvolumeclaims "c" is forbidden: may only update PVC status`},
		{"event", "", "Event: {metadata: {namespace: team, name: e}}", "", ""},
	} {
		a := admissiontest.Request(t, q.now, q.old)
		a.Sub, a.User = q.sub, agent
		if strings.Contains(q.name, "system labels") {
			trace.Proves(t, "LBL-013")
		}
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s:\ngot  %s\nwant %s", q.name, got, q.want)
		}
		a = admissiontest.Request(t, q.now, q.old)
		a.Sub = q.sub
		if got := admissiontest.Run(t, c, a); got != "" {
			t.Errorf("%s, by somebody else: got %s", q.name, got)
		}
	}
	a := admissiontest.Request(t, mine, "")
	a.User = &user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}}
	if got, want := admissiontest.Run(t, c, a), pods+`could not determine node from user "system:node:"`; got != want {
		t.Errorf("agent of no node: got %s, want %s", got, want)
	}
}

func TestNodeAgentsAskForCertificatesOfTheirPodsOnly(t *testing.T) {
	w := admissiontest.New(t,
		"Node: {metadata: {name: n1, uid: nu1}}",
		"Pod: {metadata: {namespace: team, name: mine, uid: u1}, spec: {nodeName: n1, serviceAccountName: robot}}",
		"Pod: {metadata: {namespace: team, name: static, uid: u3, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: n1}}",
		"Pod: {metadata: {namespace: team, name: others, uid: u2}, spec: {nodeName: n2, serviceAccountName: robot}}")
	c := admission.NewChain(New(w.Options()))
	const good = "podName: mine, podUID: u1, serviceAccountName: robot, nodeName: n1, nodeUID: nu1"
	const prefix = `podcertificaterequests.certificates.k8s.io "r" is forbidden: `
	for _, q := range []struct{ name, spec, want string }{
		{"own pod", good, ""},
		{"another node", strings.Replace(good, "nodeName: n1", "nodeName: n2", 1), prefix + `PodCertificateRequest.Spec.NodeName="n2", which is not the requesting node "n1"`},
		{"an earlier node", strings.Replace(good, "nu1", "nu0", 1), prefix + `PodCertificateRequest for pod "mine" names node UID "nu0" inconsistent with the running node ("nu1")`},
		{"an earlier pod", strings.Replace(good, "podUID: u1", "podUID: u0", 1), prefix + `PodCertificateRequest for pod "mine" contains pod UID ("u0") which differs from running pod "u1"`},
		{"a pod elsewhere", strings.Replace(good, "mine, podUID: u1", "others, podUID: u2", 1), prefix + `pod "others" is not running on node "n1"`},
		{"a mirror pod", strings.Replace(good, "mine, podUID: u1", "static, podUID: u3", 1), prefix + `pod "static" is a mirror pod`},
		{"a pod that is gone", strings.Replace(good, "mine", "gone", 1), `pods "gone" not found`},
		{"another account", strings.Replace(good, "robot", "admin", 1), prefix + `PodCertificateRequest for pod "mine" contains serviceAccountName ("admin") that differs from running pod ("robot")`},
	} {
		a := admissiontest.Request(t, "PodCertificateRequest: {metadata: {namespace: team, name: r}, spec: {"+q.spec+"}}", "")
		a.User = agent
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s:\ngot  %s\nwant %s", q.name, got, q.want)
		}
	}
}

func TestNodeAgentsGetTokensOfTheirPodsOnly(t *testing.T) {
	w := admissiontest.New(t,
		"Pod: {metadata: {namespace: team, name: mine, uid: u1}, spec: {nodeName: n1, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}}",
		"Pod: {metadata: {namespace: team, name: others, uid: u2}, spec: {nodeName: n2}}")
	c := admission.NewChain(New(w.Options()))
	const prefix = `serviceaccounts "robot" is forbidden: `
	for _, q := range []struct {
		name string
		ref  *authenticationv1.BoundObjectReference
		want string
	}{
		{"own pod", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "u1"}, ""},
		{"no pod", nil, prefix + "node requested token not bound to a pod"},
		{"a secret", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "mine", UID: "u1"}, prefix + "node requested token not bound to a pod"},
		{"no UID", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine"}, prefix + "node requested token with a pod binding without a uid"},
		{"an earlier pod", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "u0"},
			prefix + "the UID in the bound object reference (u0) does not match the UID in record (u1). The object might have been deleted and then recreated"},
		{"pod elsewhere", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "others", UID: "u2"}, prefix + "node requested token bound to a pod scheduled on a different node"},
		{"pod that is gone", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "gone", UID: "u3"}, `pods "gone" not found`},
	} {
		a := &admission.Attributes{
			Operation: admission.Create, Def: core.ServiceAccounts.Def, Sub: "token", Namespace: "team", Name: "robot", User: agent,
			Object: &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: q.ref}},
		}
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}

func TestNodeAgentsGetTokensForAudiencesThatPodsMention(t *testing.T) {
	w := admissiontest.New(t,
		"CSIDriver: {metadata: {name: disk.example.com}, spec: {tokenRequests: [{audience: vault}, {audience: ''}]}}",
		"PersistentVolume: {metadata: {name: pv}, spec: {csi: {driver: disk.example.com, volumeHandle: h}}}",
		"PersistentVolumeClaim: {metadata: {namespace: team, name: data}, spec: {volumeName: pv}}",
		"PersistentVolumeClaim: {metadata: {namespace: team, name: mine-scratch}, spec: {volumeName: pv}}",
		"PersistentVolumeClaim: {metadata: {namespace: team, name: unbound}}")
	o := w.Options()
	o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "request-serviceaccounts-token-audience" && a.GetAPIGroup() == "" && a.GetResource() == "registry" && a.GetNamespace() == "team" && a.GetName() == "robot" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	c := admission.NewChain(New(o))
	refused := func(audience string) string {
		return fmt.Sprintf(`serviceaccounts "robot" is forbidden: audience %q not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`, audience)
	}
	for _, q := range []struct {
		name, volumes string
		audiences     []string
		want          string
	}{
		{"the API's own, which nothing mentions", "", nil, refused("")},
		{"the API's own, projected", "{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}", nil, ""},
		{"another, projected", "{name: v, projected: {sources: [{configMap: {name: c}}, {serviceAccountToken: {path: token, audience: vault}}]}}", []string{"vault"}, ""},
		{"one that is not projected", "{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}", []string{"vault"}, refused("vault")},
		{"several", "", []string{"a", "b"}, `serviceaccounts "robot" is forbidden: node may only request 0 or 1 audiences`},
		{"of a driver within the pod", "{name: v, csi: {driver: disk.example.com}}", []string{"vault"}, ""},
		{"of a driver within the pod, the API's own", "{name: v, csi: {driver: disk.example.com}}", nil, ""},
		{"that the driver does not want", "{name: v, csi: {driver: disk.example.com}}", []string{"other"}, refused("other")},
		{"of a driver that is not there", "{name: v, csi: {driver: none.example.com}}", []string{"vault"}, refused("vault")},
		{"of the driver of a claim", "{name: v, persistentVolumeClaim: {claimName: data}}", []string{"vault"}, ""},
		{"of the driver of a claim of the pod's own", "{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}", []string{"vault"}, ""},
		{"of a claim without a volume", "{name: v, persistentVolumeClaim: {claimName: unbound}}", []string{"vault"}, refused("vault")},
		{"of a claim that is not there", "{name: v, persistentVolumeClaim: {claimName: none}}", []string{"vault"}, refused("vault")},
		{"that the agent may ask for", "", []string{"registry"}, ""},
	} {
		w.Set(t, "Pod: {metadata: {namespace: team, name: mine, uid: u1}, spec: {nodeName: n1, volumes: ["+q.volumes+"]}}")
		a := &admission.Attributes{
			Operation: admission.Create, Def: core.ServiceAccounts.Def, Sub: "token", Namespace: "team", Name: "robot", User: agent,
			Object: &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				Audiences: q.audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "u1"},
			}},
		}
		if got := admissiontest.Run(t, c, a); got != q.want {
			t.Errorf("%s: got %s, want %s", q.name, got, q.want)
		}
	}
}
