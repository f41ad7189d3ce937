package arch

// An exception lets one place break one rule: where is the path of a file or
// package, or path#name of a function or struct in it, as the violation shows it.
type exception struct{ rule, where string }

// exceptions holds the reason for each. One that is no longer needed fails the test.
var exceptions = map[exception]string{
	{"background", "internal/container/logs.go"}:                          "containerd's log entries may carry no context",
	{"background", "internal/store/etcd/log.go"}:                          "etcd's log entries carry no context",
	{"params", "internal/kubelet/attach.go#attachment.AttachContainer"}:   "the streaming library's interface is so",
	{"params", "internal/kubelet/attach_test.go#streams.AttachContainer"}: "the streaming library's interface is so",
	{"params", "internal/apiserver/suite_test.go#fixture.must"}:           "a request reads best as code, method, path, body, headers",
	{"struct-fields", "internal/resource/spec.go#Spec"}:                   "a resource is one value; a zero field means nothing special, and most kinds set few",
	{"struct-fields", "internal/resource/def.go#Def"}:                     "the resolved form of Spec, field by field",
}
