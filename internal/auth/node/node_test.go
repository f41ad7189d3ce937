package node

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

const podOnN1 = `
metadata: {namespace: team, name: web}
spec:
  nodeName: n1
  serviceAccountName: runner
  imagePullSecrets: [{name: pull}]
  initContainers:
  - envFrom: [{secretRef: {name: init-env}}]
  containers:
  - envFrom: [{configMapRef: {name: env}}]
    env:
    - valueFrom: {secretKeyRef: {name: key, key: x}}
    - valueFrom: {configMapKeyRef: {name: settings, key: x}}
  volumes:
  - {name: a, secret: {secretName: mounted}}
  - {name: b, configMap: {name: files}}
  - {name: c, projected: {sources: [{secret: {name: projected}}, {configMap: {name: kube-root-ca.crt}}]}}
  - {name: d, persistentVolumeClaim: {claimName: data}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {}}}
  - {name: e, csi: {driver: x, nodePublishSecretRef: {name: csi}}}
  - {name: f, cinder: {volumeID: x, secretRef: {name: cinder}}}
  - {name: g, persistentVolumeClaim: {claimName: greedy}}
  resourceClaims: [{name: a, resourceClaimName: gpu}, {name: b, resourceClaimTemplateName: nic}, {name: c, resourceClaimTemplateName: later}]
status:
  resourceClaimStatuses: [{name: b, resourceClaimName: web-nic-x}]
  extendedResourceClaimStatus: {resourceClaimName: web-extended-x}
`

// A mirror pod is made by the agent: what it named, the agent could read.
const mirrorOnN1 = `
metadata: {namespace: team, name: static, annotations: {kubernetes.io/config.mirror: abc}}
spec:
  nodeName: n1
  serviceAccountName: static
  volumes:
  - {name: a, secret: {secretName: static}}
  - {name: b, persistentVolumeClaim: {claimName: static}}
  resourceClaims: [{name: a, resourceClaimName: static}]
`

const podOnN2 = `
metadata: {namespace: team, name: other}
spec: {nodeName: n2, serviceAccountName: other, volumes: [{name: a, secret: {secretName: foreign}}]}
`

func parse[T any](t testing.TB, text string) *T {
	t.Helper()
	var obj T
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

func filled(def *resource.Def, objs ...resource.Object) *cache.Cache {
	c := cache.New(def, &cache.Progress{})
	var items []*cache.Item
	for _, obj := range objs {
		items = append(items, &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Rev: 1, Object: obj})
	}
	c.Replace(items, 1)
	return c
}

func newAuthorizer(t testing.TB) *Authorizer {
	return New(Caches{
		Pods: filled(core.Pods.Def, parse[corev1.Pod](t, podOnN1), parse[corev1.Pod](t, mirrorOnN1), parse[corev1.Pod](t, podOnN2)),
		Claims: filled(core.PersistentVolumeClaims.Def,
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}},
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-2"}},
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "greedy"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-2"}}),
		Volumes: filled(core.PersistentVolumes.Def, parse[corev1.PersistentVolume](t, `
metadata: {name: pv-1}
spec: {claimRef: {namespace: team, name: data}, csi: {driver: x, volumeHandle: vol, nodeStageSecretRef: {namespace: team, name: stage}, nodePublishSecretRef: {namespace: drivers, name: publish}}}`),
			parse[corev1.PersistentVolume](t, `
metadata: {name: pv-2}
spec: {claimRef: {namespace: team, name: other}, csi: {driver: x, volumeHandle: vol, nodeStageSecretRef: {namespace: team, name: others-stage}}}`),
			parse[corev1.PersistentVolume](t, localVolume("bound", "n1", "Bound")), parse[corev1.PersistentVolume](t, localVolume("released", "n1", "Released")),
			leaving(parse[corev1.PersistentVolume](t, localVolume("leaving", "n1", "Released"))), leaving(parse[corev1.PersistentVolume](t, localVolume("held", "n1", "Bound"))),
			leaving(parse[corev1.PersistentVolume](t, localVolume("elsewhere", "n2", "Released"))),
			parse[corev1.PersistentVolume](t, localVolume("foreign", "n2", "Released"))),
		VolumeAttachments: filled(storage.VolumeAttachments.Def,
			&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-1"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}},
			&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-2"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n2"}}),
		ResourceSlices: filled(dra.ResourceSlices.Def,
			parse[resourcev1.ResourceSlice](t, "metadata: {name: s-1}\nspec: {nodeName: n1}"),
			parse[resourcev1.ResourceSlice](t, "metadata: {name: s-2}\nspec: {nodeName: n2}"),
			parse[resourcev1.ResourceSlice](t, "metadata: {name: s-3}\nspec: {allNodes: true}")),
		PodCertificates: filled(certificates.PodCertificateRequests.Def,
			parse[certificatesv1.PodCertificateRequest](t, "metadata: {namespace: team, name: req-1}\nspec: {podName: web, nodeName: n1}"),
			parse[certificatesv1.PodCertificateRequest](t, "metadata: {namespace: team, name: req-2}\nspec: {podName: other, nodeName: n2}")),
		Ingresses: filled(networking.Ingresses.Def,
			parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: ours}\nspec: {ingressClassName: kemudi, tls: [{secretName: shown}]}"),
			parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: old, annotations: {kubernetes.io/ingress.class: nginx}}\nspec: {tls: [{secretName: shown-by-nginx}]}"),
			parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: classless}\nspec: {tls: [{secretName: shown-by-default}]}"),
			parse[networkingv1.Ingress](t, "metadata: {namespace: team, name: theirs}\nspec: {ingressClassName: theirs, tls: [{secretName: not-shown}]}")),
		Services: filled(core.Services.Def, parse[corev1.Service](t, "metadata: {namespace: team, name: balanced, annotations: {kemudi.io/load-balancer-certificate: shown-by-balancer}}\nspec: {type: LoadBalancer}\nstatus: {conditions: [{type: kemudi.io/Balanced, status: 'True'}]}"), parse[corev1.Service](t, "metadata: {namespace: team, name: theirs, annotations: {kemudi.io/load-balancer-certificate: not-shown}}\nspec: {type: LoadBalancer}")),
		IngressClasses: filled(networking.IngressClasses.Def,
			parse[networkingv1.IngressClass](t, "metadata: {name: kemudi, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}\nspec: {controller: kemudi.io/ingress}"),
			parse[networkingv1.IngressClass](t, "metadata: {name: theirs}\nspec: {controller: example.com/theirs}")),
	})
}

// leaving is a volume that somebody has deleted.
func leaving(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return v
}

func localVolume(name, node, phase string) string {
	return "metadata: {name: " + name + "}\nspec: {csi: {driver: local.kemudi.io, volumeHandle: x, volumeAttributes: {kemudi.io/node: " + node + "}}}\nstatus: {phase: " + phase + "}"
}

// ask reads "get secrets team/x", "list pods ?spec.nodeName=n1" or "get nodes n1";
// a group of the resource follows a dot.
func ask(t testing.TB, who, text string) *authorizer.AttributesRecord {
	t.Helper()
	f := strings.Fields(text)
	a := &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who, Groups: []string{"system:nodes", "system:authenticated"}}, Verb: f[0], ResourceRequest: true}
	res, sub, _ := strings.Cut(f[1], "/")
	a.Subresource = sub
	a.Resource, a.APIGroup, _ = strings.Cut(res, ".")
	for _, where := range f[2:] {
		if sel, ok := strings.CutPrefix(where, "?"); ok {
			parsed, err := fields.ParseSelector(sel)
			if err != nil {
				t.Fatal(err)
			}
			a.FieldSelectorRequirements = parsed.Requirements()
			continue
		}
		ns, name, ok := strings.Cut(where, "/")
		if !ok {
			ns, name = "", ns
		}
		a.Namespace, a.Name = ns, name
	}
	return a
}

// noRelation is said of what has nothing to do with the node.
const noRelation = "no relationship found between node 'n1' and this object"

func TestAgentsSeeAndWriteWhatTheirNodeNeeds(t *testing.T) {
	a := newAuthorizer(t)
	for question, want := range map[string]string{
		// Secrets and config maps: those that the node's pods refer to, one at a time.
		"get secrets team/mounted":      "",
		"watch secrets team/mounted":    "",
		"get secrets team/pull":         "",
		"get secrets team/init-env":     "",
		"get secrets team/key":          "",
		"get secrets team/projected":    "",
		"get secrets team/csi":          "",
		"get secrets team/cinder":       "",
		"get secrets team/stage":        "",
		"get secrets team/others-stage": noRelation,                                                                          // of a volume that a claim names, and that is not bound to it
		"get secrets drivers/publish":   "", "get secrets team/publish": noRelation, "get secrets drivers/stage": noRelation, // a volume says of which namespace
		"get secrets team/foreign": noRelation, "get secrets team/static": noRelation,
		// Those that an edge shows.
		"get secrets team/shown":            "",
		"watch secrets team/shown":          "",
		"get secrets team/shown-by-nginx":   "",
		"get secrets team/shown-by-default": "", "get secrets team/shown-by-balancer": "",
		"get secrets team/not-shown":           noRelation,
		"get secrets elsewhere/shown":          noRelation,
		"update secrets team/shown":            "can only read resources of this type",
		"get secrets elsewhere/mounted":        noRelation,
		"get secrets team/files":               noRelation,
		"list secrets team/":                   "No Object name found",
		"list secrets":                         "can only read namespaced object of this type",
		"delete secrets team/mounted":          "can only read resources of this type",
		"get configmaps team/env":              "",
		"get configmaps team/settings":         "",
		"list configmaps team/files":           "",
		"get configmaps team/kube-root-ca.crt": "",
		"get configmaps team/mounted":          noRelation,
		// Volumes.
		"get persistentvolumeclaims team/data":           "",
		"get persistentvolumeclaims team/web-scratch":    "",
		"get persistentvolumeclaims team/other":          noRelation,
		"get persistentvolumeclaims team/static":         noRelation,
		"list persistentvolumeclaims team/":              "can only get individual resources of this type",
		"patch persistentvolumeclaims/status team/data":  "",
		"patch persistentvolumeclaims/status team/other": noRelation,
		"get persistentvolumes pv-1":                     "",
		"get persistentvolumes pv-2":                     noRelation,
		"list persistentvolumes":                         "can only list/watch volumes of its own node by field selector",
		"watch persistentvolumes ?kemudi.io/node=n1":     "",
		"watch persistentvolumes ?kemudi.io/node=n2":     "can only list/watch volumes of its own node by field selector",
		"delete persistentvolumes released":              "",
		"delete persistentvolumes bound":                 noRelation,
		"delete persistentvolumes foreign":               noRelation,
		"delete persistentvolumes pv-1":                  noRelation,
		"get volumeattachments.storage.k8s.io va-1":      "",
		"get volumeattachments.storage.k8s.io va-2":      noRelation,
		// Tokens.
		"create serviceaccounts/token team/runner":  "",
		"create serviceaccounts/token team/other":   noRelation,
		"create serviceaccounts/token team/static":  noRelation,
		"create serviceaccounts/token team/default": noRelation,
		"get serviceaccounts team/runner":           "",
		"delete serviceaccounts team/runner":        "can only create tokens for individual service accounts",
		// Its own objects.
		"create nodes":   "",
		"get nodes n1":   "",
		"watch nodes n1": "", "patch nodes/status n1": "",
		"get nodes n2":           "node 'n1' cannot read 'n2', only its own Node object",
		"list nodes":             "node 'n1' cannot read all nodes, only its own Node object",
		"update nodes/status n2": "", // admission refuses it
		"patch nodes n2":         "",
		"delete nodes n1":        "not allowed",
		"update leases.coordination.k8s.io kube-node-lease/n1": "",
		"create leases.coordination.k8s.io kube-node-lease/":   "",
		"update leases.coordination.k8s.io kube-node-lease/n2": "can only access node lease with the same name as the requesting node",
		"update leases.coordination.k8s.io kube-system/n1":     `can only access leases in the "kube-node-lease" system namespace`,
		"list leases.coordination.k8s.io kube-node-lease/":     "can only get, create, update, patch, or delete a node lease",
		"create csinodes.storage.k8s.io":                       "",
		"update csinodes.storage.k8s.io n1":                    "",
		"update csinodes.storage.k8s.io n2":                    "can only access CSINode with the same name as the requesting node",
		// Pods.
		"get pods team/web":             "",
		"get pods team/other":           noRelation,
		"list pods ?spec.nodeName=n1":   "",
		"watch pods ?spec.nodeName=n1":  "",
		"list pods ?spec.nodeName=n2":   "can only list/watch pods with spec.nodeName field selector",
		"list pods ?spec.nodeName!=n1":  "can only list/watch pods with spec.nodeName field selector",
		"list pods":                     "can only list/watch pods with spec.nodeName field selector",
		"patch pods/status team/web":    "",
		"create pods team/":             "",
		"delete pods team/web":          "",
		"create pods/eviction team/web": "",
		"update pods team/web":          "not allowed",
		"create pods/exec team/web":     "not allowed",
		// Others: what all agents may do.
		"list services":       "",
		"create events team/": "",
		"create subjectaccessreviews.authorization.k8s.io": "",
		"list deployments.apps":                            "not allowed",
	} {
		decides(t, a, question, want)
	}
}

func TestAgentsLetGoOfTheirVolumesThatAreDeleted(t *testing.T) {
	a := newAuthorizer(t)
	for question, want := range map[string]string{
		"update persistentvolumes leaving":        "",
		"update persistentvolumes/status leaving": noRelation,
		"update persistentvolumes held":           noRelation,
		"update persistentvolumes elsewhere":      noRelation,
		"update persistentvolumes released":       noRelation,
		"patch persistentvolumes leaving":         "can only get individual resources of this type",
	} {
		decides(t, a, question, want)
	}
}

// decides checks what is said to n1's agent.
func decides(t *testing.T, a *Authorizer, question, want string) {
	t.Helper()
	decision, reason, err := a.Authorize(t.Context(), ask(t, "system:node:n1", question))
	got := reason
	if decision != authorizer.DecisionAllow && reason == "" {
		got = "not allowed"
	}
	if err != nil || got != want {
		t.Errorf("%s: got %q, %v; want %q", question, got, err, want)
	}
}

func TestAgentsSeeClaimsOfTheirPodsAndWriteSlicesOfTheirNode(t *testing.T) {
	a := newAuthorizer(t)
	for question, want := range map[string]string{
		"watch persistentvolumeclaims team/data":                            "",
		"watch persistentvolumeclaims team/other":                           noRelation,
		"get resourceclaims.resource.k8s.io team/gpu":                       "",
		"get resourceclaims.resource.k8s.io team/web-nic-x":                 "",
		"get resourceclaims.resource.k8s.io team/web-extended-x":            "",
		"get resourceclaims.resource.k8s.io team/static":                    noRelation,
		"get resourceclaims.resource.k8s.io team/other":                     noRelation,
		"list resourceclaims.resource.k8s.io team/":                         "can only get individual resources of this type",
		"get resourceclaims.resource.k8s.io/status team/gpu":                "cannot get subresource",
		"create resourceslices.resource.k8s.io":                             "",
		"update resourceslices.resource.k8s.io s-1":                         "",
		"delete resourceslices.resource.k8s.io s-2":                         noRelation,
		"get resourceslices.resource.k8s.io s-3":                            noRelation,
		"watch resourceslices.resource.k8s.io ?spec.nodeName=n1":            "",
		"deletecollection resourceslices.resource.k8s.io ?spec.nodeName=n2": "can only list/watch/deletecollection resourceslices with nodeName field selector",
		"list resourceslices.resource.k8s.io":                               "can only list/watch/deletecollection resourceslices with nodeName field selector",
	} {
		decides(t, a, question, want)
	}
}

func TestAgentsAskForCertificatesOfTheirPods(t *testing.T) {
	a := newAuthorizer(t)
	const elsewhere = "can only list/watch podcertificaterequests with nodeName field selector"
	for question, want := range map[string]string{
		"create podcertificaterequests.certificates.k8s.io team/":                       "",
		"get podcertificaterequests.certificates.k8s.io team/req-1":                     "",
		"get podcertificaterequests.certificates.k8s.io team/req-2":                     noRelation,
		"get podcertificaterequests.certificates.k8s.io team/none":                      noRelation,
		"watch podcertificaterequests.certificates.k8s.io team/ ?spec.podName=web":      "",
		"watch podcertificaterequests.certificates.k8s.io team/ ?spec.podName=other":    elsewhere,
		"watch podcertificaterequests.certificates.k8s.io elsewhere/ ?spec.podName=web": elsewhere,
		"list podcertificaterequests.certificates.k8s.io ?spec.nodeName=n1":             "",
		"list podcertificaterequests.certificates.k8s.io ?spec.nodeName=n2":             elsewhere,
		"list podcertificaterequests.certificates.k8s.io":                               elsewhere,
		"update podcertificaterequests.certificates.k8s.io team/req-1":                  "not allowed",
		"update podcertificaterequests.certificates.k8s.io/status team/req-1":           "cannot authorize PodCertificateRequest subresources",
		"delete podcertificaterequests.certificates.k8s.io team/req-1":                  "not allowed",
	} {
		decides(t, a, question, want)
	}
}

func TestOthersAreNoNodes(t *testing.T) {
	a := newAuthorizer(t)
	for who, want := range map[string]string{
		"alice":        "",
		"system:node:": `unknown node for user "system:node:"`,
	} {
		decision, reason, err := a.Authorize(t.Context(), ask(t, who, "list services"))
		if decision != authorizer.DecisionNoOpinion || reason != want || err != nil {
			t.Errorf("%s: got %v, %q, %v; want no opinion, %q", who, decision, reason, err, want)
		}
	}
	q := ask(t, "system:node:n1", "list services")
	q.User = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:authenticated"}}
	if decision, _, _ := a.Authorize(t.Context(), q); decision != authorizer.DecisionNoOpinion {
		t.Errorf("user named like a node, outside the group: got %v", decision)
	}
}

func BenchmarkSecretAmong100Pods(b *testing.B) {
	var pods []resource.Object
	for i := range 100 {
		p := parse[corev1.Pod](b, podOnN1)
		p.Name = "web-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		p.Namespace = "ns-" + p.Name
		pods = append(pods, p)
	}
	a := New(Caches{Pods: filled(core.Pods.Def, pods...)})
	q := ask(b, "system:node:n1", "get secrets "+pods[99].GetNamespace()+"/csi")
	b.ReportAllocs()
	for b.Loop() {
		if d, reason, _ := a.Authorize(b.Context(), q); d != authorizer.DecisionAllow {
			b.Fatal(reason)
		}
	}
}

func TestAgentOpensTheTunnelOfItsOwnNode(t *testing.T) {
	a := newAuthorizer(t)
	for _, c := range []struct {
		node, verb, path string
		want             authorizer.Decision
	}{
		{"n1", "get", "/kemudi.io/v1/nodes/n1/tunnel", authorizer.DecisionAllow},
		{"n2", "get", "/kemudi.io/v1/nodes/n1/tunnel", authorizer.DecisionNoOpinion},
		{"n1", "post", "/kemudi.io/v1/nodes/n1/tunnel", authorizer.DecisionNoOpinion},
		{"n1", "get", "/kemudi.io/v1/applied/17", authorizer.DecisionAllow},
		{"n1", "post", "/kemudi.io/v1/applied/17", authorizer.DecisionNoOpinion},
		{"n1", "get", "/kemudi.io/v1/applied/17/x", authorizer.DecisionNoOpinion},
		{"n1", "get", "/kemudi.io/v1/nodes/n1", authorizer.DecisionNoOpinion},
		{"", "get", "/kemudi.io/v1/nodes//tunnel", authorizer.DecisionNoOpinion},
	} {
		got, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "system:node:" + c.node, Groups: []string{user.NodesGroup}}, Verb: c.verb, Path: c.path,
		})
		if got != c.want || err != nil {
			t.Errorf("node %q: %s %s: got %v, %v, want %v", c.node, c.verb, c.path, got, err, c.want)
		}
	}
}

func TestAgentsSeeAllPodsWhileThereArePolicies(t *testing.T) {
	a := newAuthorizer(t)
	policies := filled(networking.NetworkPolicies.Def)
	a.c.NetworkPolicies = policies
	allowed := func(question string) bool {
		t.Helper()
		got, _, err := a.Authorize(t.Context(), ask(t, "system:node:n1", question))
		if err != nil {
			t.Fatal(err)
		}
		return got == authorizer.DecisionAllow
	}
	if allowed("list pods") {
		t.Error("an agent lists all pods although there is no policy")
	}
	policies.Replace([]*cache.Item{{Key: "team/p", Rev: 2, Object: &networkingv1.NetworkPolicy{}}}, 2)
	for _, question := range []string{"list pods", "watch pods"} {
		if !allowed(question) {
			t.Errorf("%s: not allowed although there is a policy", question)
		}
	}
	if allowed("get pods team/other") {
		t.Error("an agent gets a pod of another node")
	}
	policies.Replace(nil, 3)
	if allowed("watch pods") {
		t.Error("an agent watches all pods although the last policy is gone")
	}
}
