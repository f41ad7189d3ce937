package arch

// An allowance permits imports of the package prefix and of those below it.
type allowance struct{ prefix, why string }

// allowed lists the third-party code that the product may import, and its tests with it.
// docs/dependencies.md has the licence of each module and why it is worth having.
var allowed = []allowance{
	// Kubernetes.
	{"k8s.io/api", "the wire types of every built-in resource, all versions, with their codecs"},
	{"k8s.io/apimachinery", "meta types, JSON, YAML and protobuf codecs, selectors, quantities, strategic merge, managed fields"},
	{"k8s.io/client-go", "clients for what is outside the process, kubeconfig files, and the client that tests hold the server against"},
	{"k8s.io/cloud-provider", "the interface that vendors' clouds implement"},
	{"k8s.io/kubectl", "kemudi kubectl is the real kubectl"},
	{"k8s.io/component-base/config/v1alpha1", "what the scheduler's configuration shares with that of other components"},
	{"k8s.io/component-base/cli", "how kubectl's own main runs it, with the flags of its log"},
	{"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions", "the wire types of custom resource definitions, and what is wrong with one in the words that clients know"},
	{"k8s.io/apiserver/pkg/apis/apiserver", "the types of the files that say who is believed and who decides, and what is wrong with one in the words that operators know"},
	{"k8s.io/apiserver/pkg/authentication/cel", "compiles what such a file says in expressions"},
	{"k8s.io/apiserver/pkg/apis/audit/v1", "the wire types of audit policies and events"},
	{"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap", "the flow schemas and priority levels that every cluster has"},
	{"k8s.io/apiserver/pkg/authentication/authenticator", "the form of an authentication's answer"},
	{"k8s.io/apiserver/pkg/authentication/user", "who makes a request"},
	{"k8s.io/apiserver/pkg/authentication/serviceaccount", "user names, groups and extra keys of service accounts"},
	{"k8s.io/apiserver/pkg/authorization/authorizer", "the form of an authorization's question"},
	{"k8s.io/apiserver/pkg/authorization/cel", "the conditions under which an authorizer's webhook is asked"},
	{"k8s.io/apiserver/pkg/apis/cel", "what expressions may cost"},
	{"k8s.io/apiserver/pkg/cel", "the environment of the API's expressions"},
	{"k8s.io/apiextensions-apiserver/pkg/apihelpers", "which groups are Kubernetes' own, and what an approval says"},
	{"k8s.io/apiextensions-apiserver/pkg/apiserver/schema", "structural schemas: pruning, defaults, lists, rules in CEL"},
	{"k8s.io/apiextensions-apiserver/pkg/apiserver/validation", "objects against the schemas of their definitions"},
	{"k8s.io/apiserver/pkg/util/shufflesharding", "which queues a flow is dealt"},
	{"k8s.io/apiserver/pkg/warning", "how what a request comes upon is told to its client"},
	{"k8s.io/apiserver/pkg/util/proxy", "translation of today's WebSocket streams for runtimes that speak SPDY"},
	{"k8s.io/dynamic-resource-allocation/cel", "what expressions say of devices, and what that costs"},
	{"k8s.io/kube-aggregator/pkg/apis/apiregistration", "the wire types of who serves a group-version, and of their version before"},
	{"k8s.io/kube-openapi", "builders of OpenAPI v2 and v3 from Go types"},
	{"k8s.io/component-helpers", "pure scheduling helpers"},
	{"k8s.io/streaming/pkg/httpstream/wsstream", "the older WebSocket subprotocols of exec, attach and logs, frame by frame as clients expect"},
	{"k8s.io/pod-security-admission/api", "levels and versions of the Pod Security Standards, and the labels that name them"},
	{"k8s.io/pod-security-admission/policy", "what the Pod Security Standards say, in the words that clients know"},
	{"k8s.io/cri-api", "types of the Container Runtime Interface, the only way to a container runtime"},
	{"k8s.io/cri-streaming", "streaming server of exec, attach and port-forward on the runtime's side"},
	{"k8s.io/kube-scheduler/config", "types of the scheduler's configuration"},
	{"k8s.io/kube-scheduler/extender", "types of the calls to the scheduler's extenders"},
	{"k8s.io/kubelet", "types of the node agent's API and configuration"},
	{"k8s.io/metrics/pkg/apis", "the wire types of the groups of metrics"},
	{"k8s.io/kms/apis/v2", "messages of the plugins that keep keys of encryption (KMS v2)"},
	{"k8s.io/klog/v2", "the Kubernetes libraries log through it"},
	{"k8s.io/utils", "small helpers the Kubernetes libraries share"},
	{"sigs.k8s.io/json", "case-sensitive JSON decoding with strict errors, as clients expect them"},
	{"sigs.k8s.io/yaml", "YAML to JSON as kubectl does it"},
	{"sigs.k8s.io/structured-merge-diff/v6", "field sets and merging for server-side apply"},
	{"gopkg.in/evanphx/json-patch.v4", "JSON patch and JSON merge patch, the version upstream's errors come from"},
	{"github.com/google/cel-go", "values that expressions are evaluated with"},
	{"github.com/blang/semver/v4", "semantic versions, as expressions compare them"},
	{"github.com/google/gnostic-models", "protobuf form of OpenAPI, which kubectl asks for"},
	// Store.
	{"go.etcd.io/etcd/server/v3", "the only durable store, embedded"},
	{"go.etcd.io/etcd/client/v3", "client of an external etcd, and the types of the in-process one"},
	{"go.etcd.io/etcd/api/v3", "messages and errors of etcd"},
	{"go.etcd.io/etcd/client/pkg/v3", "TLS settings of an external etcd"},
	{"go.etcd.io/bbolt", "the file that etcd keeps its data in, to find damage before etcd ends the process for it, and to read snapshots"},
	{"go.etcd.io/raft/v3", "raft messages, to start a single member without waiting for its election timer"},
	{"go.uber.org/zap", "etcd logs through it"},
	{"github.com/google/btree", "ordered maps with cheap copies"},
	// Containers and images.
	{"github.com/containerd/containerd/v2", "the embedded container runtime"},
	{"github.com/containerd/containerd/api", "containerd's service messages and the options of its runc shim"},
	{"github.com/containerd/errdefs", "containerd's kinds of errors"},
	{"github.com/containerd/errdefs/pkg", "the same errors to and from gRPC, for calls that stay in process"},
	{"github.com/containerd/platforms", "which image of an index fits this machine"},
	{"github.com/containerd/plugin", "containerd is assembled from plugins"},
	{"github.com/containerd/ttrpc", "the shim's protocol, on which it reports events"},
	{"github.com/distribution/reference", "parses image names as every registry client does"},
	{"github.com/pelletier/go-toml/v2", "containerd's plugin options are TOML"},
	{"github.com/sirupsen/logrus", "containerd logs through it"},
	{"github.com/containernetworking/cni", "calls CNI plugins"},
	{"github.com/google/go-containerregistry", "image archives, registries and building images without Docker"},
	{"github.com/moby/sys/mountinfo", "reads the mount table"},
	{"github.com/opencontainers/image-spec", "types of image manifests and configurations"},
	{"github.com/klauspost/compress", "zstd, which the embedded helper programs are packed with"},
	// Network.
	{"github.com/vishvananda/netlink", "links, addresses, routes"},
	{"github.com/vishvananda/netns", "network namespaces of further nodes on one machine"},
	{"github.com/coredns/caddy", "parses Corefiles for CoreDNS' plugins"},
	{"github.com/coredns/coredns", "the embedded cluster DNS server"},
	{"github.com/miekg/dns", "DNS messages"},
	{"golang.org/x/crypto/ssh", "SSH to nodes, for networks that nobody trusts (--ssh-user)"},
	{"golang.org/x/crypto/nacl/secretbox", "one of the forms in which upstream encrypts what is stored"},
	{"golang.org/x/crypto/bcrypt", "passwords of htpasswd files, which Ingresses ask for"},
	{"golang.org/x/net", "HTTP/2 settings that the standard library does not offer"},
	{"google.golang.org/grpc", "CRI and etcd speak it"},
	{"google.golang.org/protobuf", "messages of CRI, copied between caller and in-process runtime"},
	// Security.
	{"github.com/go-jose/go-jose/v4", "signs and checks service account tokens"},
	// Program.
	{"github.com/spf13/cobra", "commands, help, shell completion"},
	{"github.com/spf13/pflag", "flags of cobra's commands"},
	{"github.com/prometheus/client_golang", "metrics in the formats that scrapers read"},
	{"github.com/google/uuid", "UIDs of objects"},
	{"golang.org/x/sys", "Linux system calls"},
}

// allowedInTests lists what tests may import besides, and packages that only tests use.
var allowedInTests = []allowance{
	{"k8s.io/apiextensions-apiserver/pkg/generated/openapi", "what upstream's generator of schemas has made of types"},
	{"k8s.io/kube-aggregator/pkg/generated/openapi", "the same, of other types"},
	{"k8s.io/cli-runtime", "how tests hand kubectl its streams and settings, to run it in process"},
	{"github.com/google/nftables", "whether foreign rules are still there and ours are gone, read by other code than wrote them"},
	{"github.com/gorilla/websocket", "the client's side of exec, attach and port-forward"},
	{"sigs.k8s.io/randfill", "fills API types with random values, to compare codecs with the libraries'"},
	{"github.com/rogpeppe/go-internal", "text scripts as tests"},
	{"github.com/anishathalye/porcupine", "whether one order of writes explains what clients of several members have read"},
}

// forbidden lists code that the product must not be made of, tests included.
var forbidden = []struct {
	prefix string
	why    string
	but    []string // packages below prefix that are libraries
}{
	{prefix: "k8s.io/kubernetes", why: "the product is written anew"},
	{prefix: "k8s.io/apiserver/pkg/server", why: "the serving layer is ours: internal/apiserver",
		but: []string{"k8s.io/apiserver/pkg/server/egressselector"}}, // a dialer that nothing calls, which the validation of definitions brings along (decision 050)
	{prefix: "k8s.io/apiserver/pkg/registry", why: "the registry is ours: internal/resource and internal/apiserver"},
	{prefix: "k8s.io/apiserver/pkg/endpoints", why: "the endpoints are ours: internal/apiserver",
		but: []string{"k8s.io/apiserver/pkg/endpoints/request"}}, // context keys only, which pkg/util/proxy brings along
	{prefix: "k8s.io/apiserver/pkg/storage", why: "the storage layer is ours: internal/store and internal/watchcache"},
	{prefix: "k8s.io/apiextensions-apiserver/pkg/apiserver", why: "serving custom resources is ours",
		but: []string{"k8s.io/apiextensions-apiserver/pkg/apiserver/schema", "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"}},
	{prefix: "k8s.io/apiextensions-apiserver/pkg/cmd", why: "serving custom resources is ours"},
	{prefix: "k8s.io/apiextensions-apiserver/pkg/controller", why: "the controllers are ours: internal/controllers"},
	{prefix: "k8s.io/apiextensions-apiserver/pkg/registry", why: "the registry is ours: internal/resource and internal/apiserver"},
	{prefix: "k8s.io/kube-aggregator/pkg/apiserver", why: "aggregation is ours"},
	{prefix: "k8s.io/kube-aggregator/pkg/cmd", why: "aggregation is ours"},
	{prefix: "k8s.io/kube-aggregator/pkg/controllers", why: "the controllers are ours: internal/controllers"},
	{prefix: "k8s.io/kube-aggregator/pkg/registry", why: "the registry is ours: internal/resource and internal/apiserver"},
	{prefix: "k8s.io/cloud-provider/app", why: "running the loops is ours: internal/cluster"},
	{prefix: "k8s.io/cloud-provider/controllers", why: "the loops are ours: internal/controllers/cloud"},
	{prefix: "k8s.io/cloud-provider/options", why: "running the loops is ours: internal/cluster"},
	{prefix: "github.com/openshift", why: "no code of another distribution"},
	{prefix: "github.com/k3s-io", why: "no code of another distribution"},
	{prefix: "github.com/rancher", why: "no code of another distribution"},
	{prefix: "github.com/k0sproject", why: "no code of another distribution"},
	{prefix: "github.com/canonical", why: "no code of another distribution"},
	{prefix: "sigs.k8s.io/kind", why: "no code of another distribution"},
	{prefix: "k8s.io/minikube", why: "no code of another distribution"},
}
