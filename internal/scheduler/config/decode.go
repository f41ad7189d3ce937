package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	configv1 "k8s.io/kube-scheduler/config/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	kind     = "KubeSchedulerConfiguration"
	v1alpha2 = configv1.GroupName + "/v1alpha2"
)

// decode reads a file strictly: what it does not know, or finds twice, is an error.
func decode(data []byte) (*configv1.KubeSchedulerConfiguration, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("strict decoding error: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("a configuration of the scheduler is a mapping: %w", err)
	}
	switch version := tree["apiVersion"]; {
	case tree["kind"] != kind:
		return nil, fmt.Errorf("kind: %q is not %s", textOf(tree["kind"]), kind)
	case version == v1alpha2:
		upgrade(tree)
	case version != configv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("apiVersion: %q is not %s: no other version is served", textOf(version), configv1.SchemeGroupVersion)
	}
	if err := checkDurations(tree); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(tree); err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	file := &configv1.KubeSchedulerConfiguration{}
	return file, strictly(data, file)
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// strictly decodes JSON into a value that has a field for everything in it.
func strictly(data []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	if err := errors.Join(unknown...); err != nil {
		return fmt.Errorf("strict decoding error: %w", err)
	}
	return nil
}

// checkDurations names durations that are none: the decoder does not say where
// they were.
func checkDurations(tree map[string]any) error {
	check := func(in any, path string, names ...string) error {
		fields, _ := in.(map[string]any)
		for _, name := range names {
			text, ok := fields[name].(string)
			if !ok {
				continue
			}
			if _, err := time.ParseDuration(text); err != nil {
				return fmt.Errorf("%s.%s: Invalid value: %q: must be a duration, such as 5s", path, name, text)
			}
		}
		return nil
	}
	if err := check(tree["leaderElection"], "leaderElection", "leaseDuration", "renewDeadline", "retryPeriod"); err != nil {
		return err
	}
	extenders, _ := tree["extenders"].([]any)
	for i, e := range extenders {
		if err := check(e, fmt.Sprintf("extenders[%d]", i), "httpTimeout"); err != nil {
			return err
		}
	}
	return nil
}

// upgrade turns a configuration of v1alpha2 into one of v1.
func upgrade(tree map[string]any) {
	tree["apiVersion"] = configv1.SchemeGroupVersion.String()
	for _, served := range []string{"healthzBindAddress", "metricsBindAddress"} { // by the server's own port
		delete(tree, served)
	}
	timeout, limited := tree["bindTimeoutSeconds"]
	disable := tree["disablePreemption"] == true
	delete(tree, "bindTimeoutSeconds")
	delete(tree, "disablePreemption")
	profiles, _ := tree["profiles"].([]any)
	if len(profiles) == 0 && (limited || disable) {
		profiles = []any{map[string]any{}}
		tree["profiles"] = profiles
	}
	for _, p := range profiles {
		profile, ok := p.(map[string]any)
		if !ok {
			continue
		}
		upgradeProfile(profile)
		if limited {
			configs, _ := profile["pluginConfig"].([]any)
			profile["pluginConfig"] = append(configs, map[string]any{"name": "VolumeBinding", "args": map[string]any{"bindTimeoutSeconds": timeout}})
		}
		if disable {
			points, _ := profile["plugins"].(map[string]any)
			if points == nil {
				points = map[string]any{}
				profile["plugins"] = points
			}
			points["postFilter"] = map[string]any{"disabled": []any{map[string]any{"name": "*"}}}
		}
	}
}

// upgradeProfile: unreserve was a point of its own, and default constraints were
// always those of the list.
func upgradeProfile(profile map[string]any) {
	if points, ok := profile["plugins"].(map[string]any); ok {
		delete(points, "unreserve")
	}
	configs, _ := profile["pluginConfig"].([]any)
	for _, c := range configs {
		config, _ := c.(map[string]any)
		args, ok := config["args"].(map[string]any)
		if !ok {
			continue
		}
		delete(args, "apiVersion")
		delete(args, "kind")
		if _, set := args["defaultingType"]; config["name"] == "PodTopologySpread" && !set {
			args["defaultingType"] = string(configv1.ListDefaulting)
		}
	}
}
