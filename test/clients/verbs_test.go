package clients

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// aKind is a kind with a sample object, in YAML and without a name, and the
// requirements that the use of all its verbs shows.
type aKind struct {
	version, plural, sample string
	cluster                 bool // it is in no namespace
	proves                  string
	names                   map[string]string // of the objects "one", "two" and "three", of a kind that is particular about them
}

var everyKind = []aKind{
	{version: "v1", plural: "configmaps", sample: `data: {a: b}`},
	{version: "v1", plural: "secrets", sample: `data: {a: Yg==}`},
	{version: "v1", plural: "services", sample: `spec: {ports: [{port: 80}]}`},
	{version: "v1", plural: "serviceaccounts", sample: `automountServiceAccountToken: true`, proves: "C-169 C-170"},
	{version: "v1", plural: "endpoints", sample: `subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]`},
	{version: "v1", plural: "events", sample: `involvedObject: {kind: Pod, name: x, namespace: NAMESPACE}`, proves: "C-448"},
	{version: "v1", plural: "limitranges", sample: `spec: {limits: [{type: Pod, max: {cpu: "1000"}}]}`},
	{version: "v1", plural: "resourcequotas", sample: `spec: {hard: {services: "100"}}`, proves: "C-144"},
	{version: "v1", plural: "podtemplates", sample: `template: {spec: {containers: [{name: c, image: c}]}}`, proves: "C-284 C-285 C-286"},
	{version: "v1", plural: "replicationcontrollers", sample: `spec: {replicas: 0, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}}`},
	{version: "v1", plural: "persistentvolumes", cluster: true, sample: `spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}, storageClassName: verbs}`},
	{version: "v1", plural: "persistentvolumeclaims", sample: `spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}`},
	{version: "v1", plural: "namespaces", cluster: true, sample: `spec: {}`, proves: "C-129 C-133"},
	{version: "v1", plural: "nodes", cluster: true, sample: `spec: {unschedulable: true}`},
	{version: "v1", plural: "pods", sample: `spec: {nodeSelector: {never: here}, containers: [{name: c, image: c}]}`, proves: "OBJ-007/library"},
	{version: "admissionregistration.k8s.io/v1", plural: "mutatingadmissionpolicies", cluster: true, proves: "C-126/verbs",
		sample: `spec: {reinvocationPolicy: Never, ` + matchesNothing + `, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]}`},
	{version: "admissionregistration.k8s.io/v1", plural: "mutatingadmissionpolicybindings", cluster: true, proves: "C-127/verbs", sample: `spec: {policyName: verbs.example.com}`},
	{version: "admissionregistration.k8s.io/v1", plural: "validatingadmissionpolicies", cluster: true, proves: "C-152/verbs", sample: `spec: {` + matchesNothing + `, validations: [{expression: "true"}]}`},
	{version: "admissionregistration.k8s.io/v1", plural: "validatingadmissionpolicybindings", cluster: true, sample: `spec: {policyName: verbs.example.com, validationActions: [Deny]}`},
	{version: "admissionregistration.k8s.io/v1", plural: "mutatingwebhookconfigurations", cluster: true, sample: `webhooks: []`},
	{version: "admissionregistration.k8s.io/v1", plural: "validatingwebhookconfigurations", cluster: true, sample: `webhooks: []`},
	{version: "apps/v1", plural: "deployments", sample: `spec: {replicas: 0, ` + selected, proves: "API-035"},
	{version: "apps/v1", plural: "replicasets", sample: `spec: {replicas: 0, ` + selected, proves: "API-035 C-044"},
	{version: "apps/v1", plural: "statefulsets", sample: `spec: {replicas: 0, serviceName: s, ` + selected, proves: "C-057"},
	{version: "apps/v1", plural: "daemonsets", sample: `spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {never: here}, containers: [{name: c, image: c}]}}}`, proves: "API-035 C-007"},
	{version: "apps/v1", plural: "controllerrevisions", sample: `{data: {a: b}, revision: 3}`},
	{version: "autoscaling/v1", plural: "horizontalpodautoscalers", sample: `spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}`, proves: "API-035"},
	{version: "autoscaling/v2", plural: "horizontalpodautoscalers", sample: `spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}`, proves: "API-035"},
	{version: "batch/v1", plural: "jobs", sample: `spec: {suspend: true, managedBy: example.com/nobody, template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}`, proves: "API-035"},
	{version: "batch/v1", plural: "cronjobs", sample: `spec: {schedule: "0 0 1 1 *", suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}}}`, proves: "C-006/verbs"},
	{version: "coordination.k8s.io/v1", plural: "leases", sample: `spec: {holderIdentity: me, renewTime: "2020-01-02T03:04:05.123456Z"}`},
	{version: "discovery.k8s.io/v1", plural: "endpointslices", sample: `{addressType: IPv4, endpoints: [], ports: []}`, proves: "C-203/verbs"},
	{version: "events.k8s.io/v1", plural: "events", sample: `{eventTime: "2020-01-02T03:04:05.123456Z", regarding: {kind: Pod, name: x, namespace: NAMESPACE}, type: Normal, reason: R, action: A, reportingController: example.com/c, reportingInstance: i}`, proves: "C-446"},
	{version: "flowcontrol.apiserver.k8s.io/v1", plural: "flowschemas", cluster: true, sample: `spec: {matchingPrecedence: 9999, priorityLevelConfiguration: {name: global-default}}`},
	{version: "flowcontrol.apiserver.k8s.io/v1", plural: "prioritylevelconfigurations", cluster: true, sample: `spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}`},
	{version: "networking.k8s.io/v1", plural: "ingresses", sample: `spec: {defaultBackend: {service: {name: verbs, port: {number: 80}}}}`, proves: "API-035 C-209"},
	{version: "networking.k8s.io/v1", plural: "ingressclasses", cluster: true, sample: `spec: {controller: example.com/verbs}`, proves: "C-210"},
	{version: "networking.k8s.io/v1", plural: "ipaddresses", cluster: true, sample: `spec: {parentRef: {resource: endpoints, namespace: default, name: verbs}}`, proves: "C-219",
		names: map[string]string{"one": "255.255.255.255", "two": "fe80::42:1dff:fe84:f9e2", "three": "192.0.2.3"}},
	{version: "networking.k8s.io/v1", plural: "networkpolicies", sample: `spec: {podSelector: {}}`},
	{version: "node.k8s.io/v1", plural: "runtimeclasses", cluster: true, sample: `handler: runc`, proves: "C-316"},
	{version: "policy/v1", plural: "poddisruptionbudgets", sample: `spec: {minAvailable: 1, selector: {matchLabels: {a: none}}}`},
	{version: "rbac.authorization.k8s.io/v1", plural: "roles", sample: `rules: []`},
	{version: "rbac.authorization.k8s.io/v1", plural: "rolebindings", sample: `roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: x}`},
	{version: "rbac.authorization.k8s.io/v1", plural: "clusterroles", cluster: true, sample: `rules: []`},
	{version: "rbac.authorization.k8s.io/v1", plural: "clusterrolebindings", cluster: true, sample: `roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}`},
	{version: "resource.k8s.io/v1", plural: "deviceclasses", cluster: true, sample: `spec: {}`},
	{version: "resource.k8s.io/v1", plural: "devicetaintrules", cluster: true, sample: `spec: {deviceSelector: {driver: verbs.example.com}, taint: {key: a, effect: NoSchedule}}`},
	{version: "resource.k8s.io/v1", plural: "resourceclaims", sample: `spec: {devices: {requests: [{name: a, exactly: {deviceClassName: b}}]}}`},
	{version: "resource.k8s.io/v1", plural: "resourceclaimtemplates", sample: `spec: {spec: {devices: {requests: [{name: a, exactly: {deviceClassName: b}}]}}}`},
	{version: "resource.k8s.io/v1", plural: "resourceslices", cluster: true, sample: `spec: {driver: verbs.example.com, allNodes: true, pool: {name: a, resourceSliceCount: 1}}`},
	{version: "scheduling.k8s.io/v1", plural: "priorityclasses", cluster: true, sample: `value: 5`},
	{version: "settings.k8s.io/v1alpha1", plural: "podpresets", sample: `spec: {env: [{name: A, value: b}], selector: {matchLabels: {a: none}}}`},
	{version: "storage.k8s.io/v1", plural: "csidrivers", cluster: true, sample: `spec: {attachRequired: false}`, proves: "C-354"},
	{version: "storage.k8s.io/v1", plural: "csinodes", cluster: true, sample: `spec: {drivers: []}`},
	{version: "storage.k8s.io/v1", plural: "storageclasses", cluster: true, sample: `provisioner: example.com/none`},
	{version: "storage.k8s.io/v1", plural: "csistoragecapacities", sample: `{storageClassName: fast, capacity: 1Gi}`, proves: "C-357"},
	{version: "storage.k8s.io/v1", plural: "volumeattributesclasses", cluster: true, sample: `{driverName: csi.example.com, parameters: {iops: "1"}}`, proves: "C-444"},
	{version: "storage.k8s.io/v1", plural: "volumeattachments", cluster: true, sample: `spec: {attacher: example.com, nodeName: one, source: {persistentVolumeName: v}}`, proves: "C-443"},
	{version: "certificates.k8s.io/v1", plural: "certificatesigningrequests", cluster: true, sample: `spec: {signerName: example.com/none, usages: [client auth], request: ` + aRequest + `}`},
}

// selected is the rest of the spec of a workload.
const selected = `selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}}`

// matchesNothing is a part of the spec of a policy.
const matchesNothing = `matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [verbs.example.com], apiVersions: [v1], resources: [nothing]}]}`

// marks makes versions a part of labels, which are short.
var marks = strings.NewReplacer(".k8s.io/", "-", "/", "-")

// TestEveryVerbOfEveryKind does with each kind what clients do: all eight verbs.
func TestEveryVerbOfEveryKind(t *testing.T) {
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range everyKind {
		gv, err := schema.ParseGroupVersion(k.version)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.ReplaceAll(k.version, "/", "_")+" "+k.plural, func(t *testing.T) {
			t.Parallel()
			if k.proves != "" {
				trace.Proves(t, strings.Fields(k.proves)...)
			}
			// Other versions and groups of the kind are tried meanwhile, and are listed here, too.
			v := &verbs{T: t, by: marks.Replace(k.version) + "-", all: client.Resource(gv.WithResource(k.plural)), k: k}
			v.own = v.all
			if !k.cluster {
				v.namespace = "verbs-" + k.plural + strings.ReplaceAll(strings.ReplaceAll("-"+k.version, "/", "-"), ".", "-")
				theServer.namespace(t, v.namespace)
				v.own = client.Resource(gv.WithResource(k.plural)).Namespace(v.namespace)
			}
			v.run()
		})
	}
}

// verbs uses every verb of one kind.
type verbs struct {
	*testing.T
	k         aKind
	by        string // the test's mark on its objects
	namespace string
	all       dynamic.ResourceInterface // in all namespaces
	own       dynamic.ResourceInterface
}

// chosen selects the objects that a test makes of the kind.
func (v *verbs) chosen() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "verbs=" + v.by + v.k.plural}
}

func (v *verbs) sample(name string) *unstructured.Unstructured {
	v.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(v.k.sample, "NAMESPACE", v.namespace)), &u.Object); err != nil {
		v.Fatal(err)
	}
	u.SetAPIVersion(v.k.version)
	u.SetKind(kindOf[v.k.plural])
	u.SetName(name)
	u.SetLabels(map[string]string{"verbs": v.by + v.k.plural})
	return u
}

// named is the name of one of the three objects.
func (v *verbs) named(which string) string {
	if name := v.k.names[which]; name != "" {
		return name
	}
	return "verbs-" + which
}

// deleteAll deletes the objects of the test. Namespaces must be named to go.
func (v *verbs) deleteAll() {
	v.Helper()
	err := v.own.DeleteCollection(v.Context(), metav1.DeleteOptions{}, v.chosen())
	if v.k.plural == "namespaces" {
		if !apierrors.IsMethodNotSupported(err) {
			v.Errorf("deletecollection: got %v, want that there is no such method", err)
		}
		err = errors.Join(v.own.Delete(v.Context(), v.named("two"), metav1.DeleteOptions{}), v.own.Delete(v.Context(), v.named("three"), metav1.DeleteOptions{}))
	}
	if err != nil {
		v.Fatalf("deletecollection: %v", err)
	}
}

// good stops the test at an error and passes the object on.
func (v *verbs) good(what string) func(*unstructured.Unstructured, error) *unstructured.Unstructured {
	return func(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
		v.Helper()
		if err != nil {
			v.Fatalf("%s: %v", what, err)
		}
		return u
	}
}

// discovered looks for the kind among the groups, their versions and what a version serves.
func (v *verbs) discovered() {
	v.Helper()
	groups, kinds, err := theServer.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		v.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(v.k.version)
	if err != nil {
		v.Fatal(err)
	}
	if !slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool {
		return g.Name == gv.Group && slices.ContainsFunc(g.Versions, func(d metav1.GroupVersionForDiscovery) bool { return d.GroupVersion == v.k.version })
	}) {
		v.Errorf("the groups lack %s", v.k.version)
	}
	want := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	if v.k.plural == "namespaces" {
		want = slices.Delete(want, 2, 3)
	}
	for _, list := range kinds {
		for _, r := range list.APIResources {
			if list.GroupVersion == v.k.version && r.Name == v.k.plural && r.Kind == kindOf[v.k.plural] && slices.Equal(slices.Sorted(slices.Values(r.Verbs)), want) {
				return
			}
		}
	}
	v.Errorf("%s lacks %s with the verbs %v", v.k.version, v.k.plural, want)
}

func (v *verbs) run() {
	ctx := v.Context()
	v.discovered()
	w, err := v.own.Watch(ctx, v.chosen())
	if err != nil {
		v.Fatal(err)
	}
	defer w.Stop()
	one := v.good("create")(v.own.Create(ctx, v.sample(v.named("one")), metav1.CreateOptions{}))
	if one.GetUID() == "" || one.GetResourceVersion() == "" || one.GetCreationTimestamp().Time.IsZero() {
		v.Errorf("created object has no uid, revision or time: %v", one.Object["metadata"])
	}
	v.expect(w, watch.Added, v.named("one"))
	got := v.good("get")(v.own.Get(ctx, v.named("one"), metav1.GetOptions{}))
	if got.GetUID() != one.GetUID() {
		v.Errorf("get: uid %s, want %s", got.GetUID(), one.GetUID())
	}
	for i, patch := range []struct {
		kind types.PatchType
		body string
	}{
		{types.MergePatchType, `{"metadata":{"labels":{"patched":"0"}}}`},
		{types.StrategicMergePatchType, `{"metadata":{"labels":{"patched":"1"}}}`},
		{types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/patched","value":"2"}]`},
		{types.ApplyPatchType, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"patched":"3"}}}`, v.k.version, kindOf[v.k.plural], v.named("one"))},
	} {
		o := metav1.PatchOptions{}
		if patch.kind == types.ApplyPatchType {
			force := true
			o = metav1.PatchOptions{FieldManager: "verbs", Force: &force}
		}
		got := v.good("patch " + string(patch.kind))(v.own.Patch(ctx, v.named("one"), patch.kind, []byte(patch.body), o))
		trace.Proves(v.T, "WHAT-004")
		if got.GetLabels()["patched"] != fmt.Sprint(i) {
			v.Errorf("patch %s: got labels %v", patch.kind, got.GetLabels())
		}
		v.expect(w, watch.Modified, v.named("one"))
	}
	v.update(w)
	v.good("create")(v.own.Create(ctx, v.sample(v.named("two")), metav1.CreateOptions{}))
	v.expect(w, watch.Added, v.named("two"))
	v.counts(2)
	if err := v.own.Delete(ctx, v.named("one"), metav1.DeleteOptions{}); err != nil {
		v.Fatalf("delete: %v", err)
	}
	v.expect(w, watch.Deleted, v.named("one"))
	v.good("create")(v.own.Create(ctx, v.sample(v.named("three")), metav1.CreateOptions{}))
	v.deleteAll()
	v.expect(w, watch.Deleted, v.named("two"))
	wait.Until(v.T, func() error {
		list, err := v.own.List(ctx, v.chosen())
		if err == nil && len(list.Items) != 0 {
			err = fmt.Errorf("%d objects are left", len(list.Items))
		}
		return err
	})
}

// update replaces the object, first with an old revision, which must fail.
func (v *verbs) update(w watch.Interface) {
	v.Helper()
	ctx := v.Context()
	err := wait.Try(wait.Patience, func() error {
		got, err := v.own.Get(ctx, v.named("one"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		stale := got.DeepCopy()
		stale.SetResourceVersion("1")
		if _, err := v.own.Update(ctx, stale, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "the object has been modified") {
			v.Errorf("update of revision 1: got %v, want a conflict", err)
		}
		got.SetAnnotations(map[string]string{"updated": "yes"})
		got, err = v.own.Update(ctx, got, metav1.UpdateOptions{})
		trace.Proves(v.T, "WHAT-005")
		if err == nil && got.GetAnnotations()["updated"] != "yes" {
			v.Errorf("update: got annotations %v", got.GetAnnotations())
		}
		return err
	})
	if err != nil {
		v.Fatalf("update: %v", err)
	}
	v.expect(w, watch.Modified, v.named("one"))
}

// counts lists the objects, in the namespace and in all, whole and in chunks.
func (v *verbs) counts(want int) {
	v.Helper()
	for what, resource := range map[string]dynamic.ResourceInterface{"list": v.own, "list over all namespaces": v.all} {
		o, got := v.chosen(), 0
		for o.Limit = 1; ; {
			list, err := resource.List(v.Context(), o)
			if err != nil {
				v.Fatalf("%s: %v", what, err)
			}
			if list.GetResourceVersion() == "" || len(list.Items) > 1 {
				v.Errorf("%s: got revision %q and %d objects in a chunk of 1", what, list.GetResourceVersion(), len(list.Items))
			}
			got += len(list.Items)
			if o.Continue = list.GetContinue(); o.Continue == "" {
				break
			}
		}
		if got != want {
			v.Errorf("%s: got %d objects, want %d", what, got, want)
		}
	}
}

// expect waits for an event about an object; controllers may cause others before it.
func (v *verbs) expect(w watch.Interface, kind watch.EventType, name string) {
	v.Helper()
	deadline := time.After(wait.Patience)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				v.Fatalf("the watch ended before %s of %s", kind, name)
			}
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == kind && u.GetName() == name {
				return
			}
		case <-deadline:
			v.Fatalf("no event %s of %s within %s", kind, name, wait.Patience)
		}
	}
}

// kindOf names the kinds by their plurals.
var kindOf = map[string]string{
	"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
	"validatingadmissionpolicies": "ValidatingAdmissionPolicy", "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
	"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service", "serviceaccounts": "ServiceAccount", "endpoints": "Endpoints",
	"events": "Event", "limitranges": "LimitRange", "resourcequotas": "ResourceQuota", "podtemplates": "PodTemplate",
	"replicationcontrollers": "ReplicationController", "persistentvolumes": "PersistentVolume", "persistentvolumeclaims": "PersistentVolumeClaim",
	"namespaces": "Namespace", "nodes": "Node", "pods": "Pod", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet",
	"daemonsets": "DaemonSet", "controllerrevisions": "ControllerRevision", "jobs": "Job", "cronjobs": "CronJob", "leases": "Lease",
	"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
	"horizontalpodautoscalers": "HorizontalPodAutoscaler", "flowschemas": "FlowSchema", "prioritylevelconfigurations": "PriorityLevelConfiguration",
	"endpointslices": "EndpointSlice", "runtimeclasses": "RuntimeClass", "poddisruptionbudgets": "PodDisruptionBudget", "roles": "Role",
	"rolebindings": "RoleBinding", "clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding", "priorityclasses": "PriorityClass", "podpresets": "PodPreset",
	"csidrivers": "CSIDriver", "csinodes": "CSINode", "storageclasses": "StorageClass", "volumeattachments": "VolumeAttachment",
	"csistoragecapacities": "CSIStorageCapacity", "volumeattributesclasses": "VolumeAttributesClass",
	"certificatesigningrequests": "CertificateSigningRequest", "deviceclasses": "DeviceClass", "devicetaintrules": "DeviceTaintRule",
	"resourceclaims": "ResourceClaim", "resourceclaimtemplates": "ResourceClaimTemplate", "resourceslices": "ResourceSlice",
	"ingresses": "Ingress", "ingressclasses": "IngressClass", "ipaddresses": "IPAddress", "networkpolicies": "NetworkPolicy",
}

// aRequest is a request for a certificate, in PEM and base64.
const aRequest = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1HOENBUUF3RFRFTE1Ba0dBMVVFQXd3Q2JXVXdXVEFUQmdjcWhrak9QUUlCQmdncWhrak9QUU1CQndOQwpBQVRZcllOZHRRT3JSS210K3VTeXdwb1hSV1ZReW9vNzIzRUJzSmZkN0M5TkpNQWVsUGhVTjYzWnU4bjdER2JUCnpUYWZkZ2wvUVBNMUN1T3Zyb1EvQXZJV29BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWdXbXhic05yZlNaUVgKeU5XUG95VDVvRThwQjBUZTMyY3JvaEgwMytKdUhrVUNJUUN5clhsSUI1U280NzR1VURhcUR6U3NDdWpQOGhHUgpyUGV5U2hvaXhJRU8xdz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
