package quota_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/admissiontest"
	"github.com/kemudi/kemudi/internal/admission/quota"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/trace"
)

const team = "Namespace: {metadata: {name: team}, status: {phase: Active}}"

// withQuota is a quota written as its amounts and more of its spec, of which so
// much is used.
func withQuota(name, hard, spec, used string) string {
	return fmt.Sprintf("ResourceQuota: {metadata: {namespace: team, name: %s}, spec: {hard: {%s}%s}, status: {hard: {%s}, used: {%s}}}", name, hard, spec, hard, used)
}

// ask asks the plugin, and tells what it refuses or else what it charges.
func ask(t *testing.T, w *admissiontest.World, a *admission.Attributes) string {
	t.Helper()
	return askTold(t, w, a, "")
}

// askTold does so when the plugin has a configuration.
func askTold(t *testing.T, w *admissiontest.World, a *admission.Attributes, config string) string {
	t.Helper()
	o := w.Options()
	o.Config = admission.Configurations{"ResourceQuota": []byte(config)}
	p, err := quota.New(o)
	if err != nil {
		t.Fatal(err)
	}
	text := admissiontest.Run(t, admission.NewChain(p), a)
	for _, f := range a.After {
		f()
	}
	if text != "" {
		return text
	}
	for _, c := range a.Carried {
		q, ok := c.Now.(*corev1.ResourceQuota)
		if !ok {
			text += "writes " + c.Def.Plural + "; "
			continue
		}
		data, err := yaml.Marshal(q.Status.Used)
		if err != nil {
			t.Fatal(err)
		}
		text += q.Name + ": " + string(data)
	}
	return text
}

const plain = "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: '1'}}}]}}"

// limited is a pod of two containers with limits, and of an init container with that one.
func limited(init string) string {
	return "Pod: {metadata: {namespace: team, name: x}, spec: {initContainers: [{name: i, resources: {limits: {cpu: " + init + "}}}], " +
		"containers: [{name: a, resources: {limits: {cpu: 200m}}}, {name: b, resources: {limits: {cpu: 300m}}}]}}"
}

func TestQuotasAreChargedOrRefuse(t *testing.T) {
	bare := "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: b}, {name: a}], initContainers: [{name: i}]}}"
	for _, q := range []struct{ name, quota, now, old, want string }{
		{"a pod that fits", withQuota("q", "pods: 2, requests.cpu: '1', count/pods: 9, limits.cpu: 2", "", "pods: 1, requests.cpu: 900m, count/pods: 1, limits.cpu: 0"), plain, "",
			"q: count/pods: \"2\"\nlimits.cpu: \"1\"\npods: \"2\"\nrequests.cpu: \"1\"\n"},
		{"one too many", withQuota("q", "pods: 2", "", "pods: 2"), plain, "",
			`pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`},
		{"too much of two", withQuota("q", "memory: 1Gi, cpu: 150m", "", "memory: 512Mi, cpu: 100m"), plain, "",
			`pods "x" is forbidden: exceeded quota: q, requested: cpu=100m,memory=1Gi, used: cpu=100m,memory=512Mi, limited: cpu=150m,memory=1Gi`},
		{"what must be named", withQuota("q", "limits.cpu: 1, requests.memory: 1Gi, requests.ephemeral-storage: 1Gi", "", "limits.cpu: 0, requests.memory: 0, requests.ephemeral-storage: 0"), bare, "",
			`pods "x" is forbidden: failed quota: q: must specify limits.cpu for: a,b,i; requests.memory for: a,b,i`},
		{"resources of the pod as a whole", withQuota("q", "limits.cpu: 1", "", "limits.cpu: 0"),
			"Pod: {metadata: {namespace: team, name: x}, spec: {resources: {limits: {cpu: 250m}}, containers: [{name: b}]}}", "", "q: limits.cpu: 250m\n"},
		{"nobody has counted yet", withQuota("q", "pods: 2, count/pods: 4", "", "count/pods: 0"), plain, "",
			`pods "x" is forbidden: status unknown for quota: q, resources: count/pods,pods`},
		{"the controller has not seen the quota yet", "ResourceQuota: {metadata: {namespace: team, name: q}, spec: {hard: {pods: 0}}}", plain, "", "q: pods: \"1\"\n"},
		{"nothing that is counted", withQuota("q", "secrets: 0", "", "secrets: 0"), plain, "", ""},
		{"huge pages and devices", withQuota("q", "requests.hugepages-2Mi: 4Mi, hugepages-2Mi: 8Mi, requests.example.com/gpu: 3", "", "requests.hugepages-2Mi: 0, hugepages-2Mi: 0, requests.example.com/gpu: 1"),
			"Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi, example.com/gpu: 2}}}]}}", "",
			"q: hugepages-2Mi: 4Mi\nrequests.example.com/gpu: \"3\"\nrequests.hugepages-2Mi: 4Mi\n"},
		{"overhead, init containers and sidecars", withQuota("q", "cpu: 10", "", "cpu: 0"),
			`Pod: {metadata: {namespace: team, name: x}, spec: {overhead: {cpu: 10m}, containers: [{name: a, resources: {requests: {cpu: 200m}}}],
			 initContainers: [{name: i, resources: {requests: {cpu: 1}}}, {name: s, restartPolicy: Always, resources: {requests: {cpu: 100m}}}, {name: j, resources: {requests: {cpu: 950m}}}]}}`, "",
			"q: cpu: 1060m\n"},
		{"limits of a large init container", withQuota("q", "limits.cpu: 10", "", "limits.cpu: 0"), limited("1"), "", "q: limits.cpu: \"1\"\n"},
		{"limits of a small init container", withQuota("q", "limits.cpu: 10", "", "limits.cpu: 0"), limited("400m"), "", "q: limits.cpu: 500m\n"},
		{"a pod that is resized", withQuota("q", "requests.cpu: 1, pods: 1", "", "requests.cpu: 500m, pods: 1"),
			"Pod/resize: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: 900m}}}]}}",
			"Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: 500m}}}]}}", "q: pods: \"1\"\nrequests.cpu: 900m\n"},
		{"a pod that is resized too far", withQuota("q", "requests.cpu: 1, pods: 1", "", "requests.cpu: 500m, pods: 1"),
			"Pod/resize: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: '2'}}}]}}",
			"Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a, resources: {requests: {cpu: 500m}}}]}}",
			`pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=500m, limited: requests.cpu=1`},
		{"an update of a pod is not looked at", withQuota("q", "requests.cpu: 1", "", "requests.cpu: 500m"), plain, plain, ""},
		{"a service with node ports", withQuota("q", "services: 2, services.nodeports: 2, services.loadbalancers: 0", "", "services: 0, services.nodeports: 0, services.loadbalancers: 0"),
			"Service: {metadata: {namespace: team, name: x}, spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}}", "",
			"q: services: \"1\"\nservices.loadbalancers: \"0\"\nservices.nodeports: \"2\"\n"},
		{"a load balancer with node ports", withQuota("q", "services.nodeports: 1, services.loadbalancers: 1", "", "services.nodeports: 0, services.loadbalancers: 0"),
			"Service: {metadata: {namespace: team, name: x}, spec: {type: LoadBalancer, ports: [{port: 1}, {port: 2}]}}", "",
			`services "x" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1`},
		{"a load balancer without", withQuota("q", "services.nodeports: 1, services.loadbalancers: 1", "", "services.nodeports: 0, services.loadbalancers: 0"),
			"Service: {metadata: {namespace: team, name: x}, spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 1}, {port: 2, nodePort: 30000}]}}", "",
			"q: services.loadbalancers: \"1\"\nservices.nodeports: \"1\"\n"},
		{"a service that gives up its ports", withQuota("q", "services: 1, services.nodeports: 1", "", "services: 1, services.nodeports: 2"),
			"Service: {metadata: {namespace: team, name: x}, spec: {type: ClusterIP, ports: [{port: 1}, {port: 2}]}}",
			"Service: {metadata: {namespace: team, name: x}, spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}}",
			"q: services: \"1\"\nservices.nodeports: \"0\"\n"},
		{"a claim and its class", withQuota("q", "persistentvolumeclaims: 2, requests.storage: 5Gi, gold.storageclass.storage.k8s.io/requests.storage: 4Gi, gold.storageclass.storage.k8s.io/persistentvolumeclaims: 1, tin.storageclass.storage.k8s.io/requests.storage: 1Gi", "",
			"persistentvolumeclaims: 0, requests.storage: 1Gi, gold.storageclass.storage.k8s.io/requests.storage: 0, gold.storageclass.storage.k8s.io/persistentvolumeclaims: 0, tin.storageclass.storage.k8s.io/requests.storage: 1Gi"),
			"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {storageClassName: gold, resources: {requests: {storage: 4Gi}}}}", "",
			"q: gold.storageclass.storage.k8s.io/persistentvolumeclaims: \"1\"\ngold.storageclass.storage.k8s.io/requests.storage: 4Gi\npersistentvolumeclaims: \"1\"\nrequests.storage: 5Gi\ntin.storageclass.storage.k8s.io/requests.storage: 1Gi\n"},
		{"a claim that grows too far", withQuota("q", "requests.storage: 5Gi", "", "requests.storage: 4Gi"),
			"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {resources: {requests: {storage: 6Gi}}}}",
			"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {resources: {requests: {storage: 4Gi}}}}",
			`persistentvolumeclaims "x" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=4Gi, limited: requests.storage=5Gi`},
		{"the number of any kind", withQuota("q", "count/deployments.apps: 1", "", "count/deployments.apps: 1"),
			"Deployment: {metadata: {namespace: team, generateName: web-}}", "",
			`deployments.apps "web-" is forbidden: exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1`},
		{"and by the group that it had", withQuota("q", "count/deployments.extensions: 1", "", "count/deployments.extensions: 0"),
			"Deployment: {metadata: {namespace: team, name: web}}", "", "q: count/deployments.extensions: \"1\"\n"},
		{"config maps by either name", withQuota("q", "configmaps: 1, count/configmaps: 1", "", "configmaps: 0, count/configmaps: 0"),
			"ConfigMap: {metadata: {namespace: team, name: x}}", "", "q: configmaps: \"1\"\ncount/configmaps: \"1\"\n"},
		{"an update of what is only counted", withQuota("q", "configmaps: 0", "", "configmaps: 1"),
			"ConfigMap: {metadata: {namespace: team, name: x}, data: {a: b}}", "ConfigMap: {metadata: {namespace: team, name: x}}", ""},
		{"events are never counted", withQuota("q", "count/events: 0", "", "count/events: 0"), "Event: {metadata: {namespace: team, name: x}}", "", ""},
		{"a quota is an object too", withQuota("q", "resourcequotas: 1", "", "resourcequotas: 1"), "ResourceQuota: {metadata: {namespace: team, name: x}}", "",
			`resourcequotas "x" is forbidden: exceeded quota: q, requested: resourcequotas=1, used: resourcequotas=1, limited: resourcequotas=1`},
		{"who makes a quota writes the namespace", withQuota("q", "pods: 1", "", "pods: 1"), "ResourceQuota: {metadata: {namespace: team, name: x}}", "", "writes namespaces; "},
		{"so does who has one count more", withQuota("q", "pods: 1", "", "pods: 1"), "ResourceQuota: {metadata: {namespace: team, name: q}, spec: {hard: {pods: 1, secrets: 1}}}",
			"ResourceQuota: {metadata: {namespace: team, name: q}, spec: {hard: {pods: 1}}}", "writes namespaces; "},
		{"but not who changes how much", withQuota("q", "pods: 1", "", "pods: 1"), "ResourceQuota: {metadata: {namespace: team, name: q}, spec: {hard: {pods: 2}}}",
			"ResourceQuota: {metadata: {namespace: team, name: q}, spec: {hard: {pods: 1}}}", ""},
	} {
		w := admissiontest.New(t, team, q.quota)
		now, resize := q.now, false
		if len(now) > 10 && now[:10] == "Pod/resize" {
			now, resize = "Pod"+now[10:], true
		}
		a := admissiontest.Request(t, now, q.old)
		if resize {
			a.Sub = "resize"
		}
		if got := ask(t, w, a); got != q.want {
			t.Errorf("%s:\ngot  %q\nwant %q", q.name, got, q.want)
		}
	}
	// INIT-040: the effective requests, the init containers' among them, are what counts.
	trace.Proves(t, "INIT-037/limits", "INIT-040")
}

func TestQuotasAreOfTheirScopesAlone(t *testing.T) {
	pod := func(spec string) string {
		return "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a}], " + spec + "}}"
	}
	with := "containers: [{name: a, resources: {requests: {cpu: 1}}}]"
	for _, q := range []struct {
		scope   string // of the quota
		in, out []string
	}{
		{"scopes: [Terminating]", []string{pod("activeDeadlineSeconds: 5")}, []string{pod("")}},
		{"scopes: [NotTerminating]", []string{pod("")}, []string{pod("activeDeadlineSeconds: 5")}},
		{"scopes: [BestEffort]", []string{pod("")}, []string{"Pod: {metadata: {namespace: team, name: x}, spec: {" + with + "}}"}},
		{"scopes: [NotBestEffort]", []string{"Pod: {metadata: {namespace: team, name: x}, spec: {" + with + "}}"}, []string{pod("")}},
		{"scopes: [NotTerminating, BestEffort]", []string{pod("")}, []string{pod("activeDeadlineSeconds: 5")}},
		{"scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high, top]}]}", []string{pod("priorityClassName: top")}, []string{pod("priorityClassName: low"), pod("")}},
		{"scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, values: [high]}]}", []string{pod("priorityClassName: low"), pod("")}, []string{pod("priorityClassName: high")}},
		{"scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists}]}", []string{pod("priorityClassName: low")}, []string{pod("")}},
		{"scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}", []string{pod("")}, []string{pod("priorityClassName: low")}},
		{"scopes: [CrossNamespacePodAffinity]", []string{
			pod("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, namespaces: [b]}]}}"),
			pod("affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a, namespaceSelector: {}}}]}}"),
		}, []string{pod(""), pod("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}")}},
		{"scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [fast]}]}",
			[]string{"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {volumeAttributesClassName: fast}}",
				"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, status: {currentVolumeAttributesClassName: fast}}"},
			[]string{"PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {volumeAttributesClassName: slow}}", pod("")}},
	} {
		full := withQuota("q", "pods: 0, persistentvolumeclaims: 0", ", "+q.scope, "pods: 0, persistentvolumeclaims: 0")
		for _, text := range q.in {
			if got := ask(t, admissiontest.New(t, team, full), admissiontest.Request(t, text, "")); got == "" {
				t.Errorf("%s: %s passes, though it is in the scope", q.scope, text)
			}
		}
		for _, text := range q.out {
			if got := ask(t, admissiontest.New(t, team, full), admissiontest.Request(t, text, "")); got != "" {
				t.Errorf("%s: %s: got %s, though it is not in the scope", q.scope, text, got)
			}
		}
	}
}

func TestWhatIsLimitedNeedsAQuota(t *testing.T) {
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: pods
  matchContains: [cpu]
- resource: pods
  matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]
- {apiGroup: apps, resource: deployments, matchContains: [count/]}
- resource: persistentvolumeclaims
  matchContains: [.storageclass.storage.k8s.io/requests.storage]
`
	none := "ResourceQuota: {metadata: {namespace: other, name: c}}"
	high := "Pod: {metadata: {namespace: team, name: x}, spec: {priorityClassName: high, containers: [{name: a}]}}"
	ofHigh := ", scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}"
	claim := "PersistentVolumeClaim: {metadata: {namespace: team, name: x}, spec: {storageClassName: gold, resources: {requests: {storage: 4Gi}}}}"
	for _, q := range []struct{ name, quota, now, want string }{
		{"a pod of which nothing is limited", none, "Pod: {metadata: {namespace: team, name: x}, spec: {containers: [{name: a}]}}", ""},
		{"one that takes what is", none, plain, `pods "x" is forbidden: insufficient quota to consume: cpu,limits.cpu,requests.cpu`},
		{"with a quota of a part of it", withQuota("q", "requests.cpu: 9", "", "requests.cpu: 0"), plain, `pods "x" is forbidden: insufficient quota to consume: cpu,limits.cpu`},
		{"with one of all", withQuota("q", "requests.cpu: 9, cpu: 9, limits.cpu: 9", "", "requests.cpu: 0, cpu: 0, limits.cpu: 0"), plain, "q: cpu: 100m\nlimits.cpu: \"1\"\nrequests.cpu: 100m\n"},
		{"with one that is about others", withQuota("q", "requests.cpu: 9, cpu: 9, limits.cpu: 9", ", scopes: [BestEffort]", "requests.cpu: 0, cpu: 0, limits.cpu: 0"), plain,
			`pods "x" is forbidden: insufficient quota to consume: cpu,limits.cpu,requests.cpu`},
		{"a priority", none, high, `pods "x" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]`},
		{"with a quota of all priorities", withQuota("q", "pods: 9", "", "pods: 0"), high, `pods "x" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]`},
		{"with one of that priority", withQuota("q", "pods: 9", ofHigh, "pods: 0"), high, "q: pods: \"1\"\n"},
		{"another kind", none, "Deployment: {metadata: {namespace: team, name: web}}", `deployments.apps "web" is forbidden: insufficient quota to consume: count/deployments.apps`},
		{"a kind that is not limited", none, "ReplicaSet: {metadata: {namespace: team, name: web}}", ""},
		{"a class", none, claim, `persistentvolumeclaims "x" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage`},
	} {
		if got := askTold(t, admissiontest.New(t, team, q.quota), admissiontest.Request(t, q.now, ""), config); got != q.want {
			t.Errorf("%s:\ngot  %q\nwant %q", q.name, got, q.want)
		}
	}
	for config, want := range map[string]string{
		"limitedResources: [{resource: ''}]": "configuration of admission plugin ResourceQuota: limitedResources[0].resource: Required value",
		"limitedResources: [{kind: Pod}]":    `configuration of admission plugin ResourceQuota: error unmarshaling JSON: while decoding JSON: json: unknown field "kind"`,
		"kind: Other":                        "configuration of admission plugin ResourceQuota: is v1 Other, want apiserver.config.k8s.io/v1 ResourceQuotaConfiguration",
	} {
		o := admissiontest.New(t, team).Options()
		version := "apiVersion: v1\n"
		if config != "kind: Other" {
			version = "apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\n"
		}
		o.Config = admission.Configurations{"ResourceQuota": []byte(version + config)}
		if _, err := quota.New(o); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", config, err, want)
		}
	}
}

func TestAllQuotasOfANamespaceAreCharged(t *testing.T) {
	w := admissiontest.New(t, team, withQuota("b", "pods: 5", "", "pods: 1"), withQuota("a", "cpu: 5", "", "cpu: '1'"),
		"ResourceQuota: {metadata: {namespace: other, name: c}, spec: {hard: {pods: 0}}, status: {hard: {pods: 0}, used: {pods: 0}}}")
	a := admissiontest.Request(t, plain, "")
	if got, want := ask(t, w, a), "a: cpu: 1100m\nb: pods: \"2\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	relied := 0
	for _, r := range a.Relied {
		if r.Def == core.Namespaces.Def || r.Def == core.ResourceQuotas.Def {
			relied++
		}
	}
	if relied != 3 {
		t.Errorf("got %d objects that it relies on, want the namespace and two quotas", relied)
	}
}
