package arch

// An exception lets one place break one rule: where is the path of a file or
// package, or path#name of a function or struct in it, as the violation shows it.
type exception struct{ rule, where string }

// exceptions holds the reason for each. One that is no longer needed fails the test.
var exceptions = map[exception]string{
	{"background", "internal/container/logs.go"}:                                      "containerd's log entries may carry no context",
	{"background", "internal/api/apiextensions/customresourcedefinition_validate.go"}: "the library's checks of definitions take a context; checks of objects have none",
	{"background", "internal/api/scheduling/generated.go"}:                            "what the library generates takes a context and looks at none; checks of objects have none",
	{"background", "internal/store/etcd/log.go"}:                                      "etcd's log entries carry no context",
	{"params", "internal/kubelet/relay/attach.go#attaching.AttachContainer"}:          "the streaming library's interface is so",
	{"params", "internal/kubelet/relay/attach_test.go#served.AttachContainer"}:        "the streaming library's interface is so",
	{"params", "internal/kubelet/relay/exec.go#executing.ExecInContainer"}:            "the streaming library's interface is so",
	{"params", "internal/kubelet/relay/exec_test.go#served.ExecInContainer"}:          "the streaming library's interface is so",
	{"params", "internal/apiserver/suite_test.go#fixture.must"}:                       "a request reads best as code, method, path, body, headers",
	{"params", "internal/admission/webhook/world_test.go#world.must"}:                 "a request reads best as code, method, path, body, headers",
	{"params", "internal/admission/webhook/world_test.go#world.refused"}:              "the same, with what is to be answered",
	{"params", "test/baseline/registry.go#podStatus.Update"}:                          "the library's interface is so",
	{"forbidden", "test/baseline/registry.go"}:                                        "the library is what is measured there",
	{"forbidden", "test/baseline/server.go"}:                                          "the library is what is measured there",
	{"forbidden", "test/sampleserver/main.go"}:                                        "the sample of an aggregated API server is made of it",
	{"forbidden", "test/upstreamcloud/main.go"}:                                       "the framework is what ours is compared with there",
	{"kind", "internal/resource/spec.go"}:                                             "the body that the subresource scale is declared with",

	{"setter", "internal/plane/plane.go#Options.Leadership"}:               "leaders are elected; tests have nobody lead",
	{"setter", "internal/store/etcd/options.go#Options.History"}:           "how far a watch may fall behind is for the watch cache to know; tests want little",
	{"setter", "internal/store/etcd/options.go#Options.ListenClient"}:      "etcd's own port for backups: nothing serves it yet",
	{"setter", "internal/store/etcd/options.go#Options.CertFile"}:          "goes with ListenClient",
	{"setter", "internal/store/etcd/options.go#Options.KeyFile"}:           "goes with ListenClient",
	{"setter", "internal/store/etcd/options.go#Options.ClientCAFile"}:      "goes with ListenClient",
	{"setter", "internal/store/etcd/options.go#Options.Quota"}:             "what etcd recommends suits all; tests want little",
	{"setter", "internal/store/etcd/options.go#Options.NoSync"}:            "for tests only, as it says",
	{"setter", "internal/store/mem/mem.go#Options.History"}:                "copies of clusters need none; tests want little",
	{"setter", "internal/container/options.go#Options.Snapshotter"}:        "found out; tests want both",
	{"setter", "internal/container/options.go#Options.LogLevel"}:           "follows the program's own; a test wants more",
	{"setter", "internal/podnet/options.go#Options.Bridge"}:                "one bridge a machine; tests have others beside it",
	{"setter", "internal/podnet/options.go#Options.CNICacheDir"}:           "where CNI has it; tests have others",
	{"setter", "internal/edge/edge.go#Options.Listen"}:                     "the network, of which tests choose the ports",
	{"setter", "internal/edge/edge.go#Options.ListenPacket"}:               "likewise",
	{"setter", "internal/dialback/agent.go#AgentOptions.Dial"}:             "the network, which tests pretend",
	{"setter", "internal/client/https/options.go#Options.Dial"}:            "the network, which tests pretend",
	{"setter", "internal/client/https/options.go#Options.RequestTimeout"}:  "a pace that suits all; tests want another",
	{"setter", "internal/client/https/options.go#Options.PageSize"}:        "a pace that suits all; tests want another",
	{"setter", "internal/client/https/options.go#Options.WatchTimeout"}:    "a pace that suits all; tests want another",
	{"setter", "internal/client/https/options.go#Options.Backoff"}:         "a pace that suits all; tests want another",
	{"setter", "internal/dns/server.go#Options.Listen"}:                    "the network, which tests pretend",
	{"setter", "internal/proxy/proxy.go#Options.Listen"}:                   "the network, which tests pretend",
	{"setter", "internal/proxy/proxy.go#Options.MinInterval"}:              "a pace that suits all; tests want another",
	{"setter", "internal/kubelet/options.go#Options.Simulated"}:            "nodes without a machine are for tests",
	{"setter", "internal/kubelet/options.go#Options.Capacity"}:             "goes with Simulated",
	{"setter", "internal/kubelet/image/collect.go#CollectorOptions.Usage"}: "the disk, which tests pretend",
}
