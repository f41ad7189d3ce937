package main

import (
	"strings"
	"testing"
)

// What is traced of a node agent is said by its file as upstream has it, and by one flag.
func TestTracingOfNodeAgentsIsSaidByTheirFile(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for text, want := range map[string]string{
		"tracing: {endpoint: 'collector:4317', samplingRatePerMillion: 100}": "endpoint=collector:4317,samplingRatePerMillion=100",
		"tracing: {samplingRatePerMillion: 1000000}":                         "samplingRatePerMillion=1000000",
		"tracing: {}": "", // what others ask for is traced
	} {
		_, f := partFlags(t, "kubelet")
		if _, err := kubeletConfig().apply(f, []byte(head+text+"\n")); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if flag := f.Lookup("node-tracing"); !flag.Changed || flag.Value.String() != want {
			t.Errorf("%s: got %q (said: %t), want %q", text, flag.Value, flag.Changed, want)
		}
	}
	for text, want := range map[string]string{
		"tracing: {samplingRatePerMillion: 1000001}":    "tracing: invalid argument",
		"tracing: {samplingRatePerMillion: -1}":         "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
		"tracing: {samplingRatePerMillion: 0.5}":        `samplingRatePerMillion: "0.5"`,
		"tracing: {endpoint: 'https://collector:4317'}": "endpoint: Invalid value",
		"tracing: {rate: 5}":                            `there is no "rate"`,
		"tracing: much":                                 `there is no "much"`,
	} {
		_, f := partFlags(t, "kubelet")
		if _, err := kubeletConfig().apply(f, []byte(head+text+"\n")); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "tracing") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
