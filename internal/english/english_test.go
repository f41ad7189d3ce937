package english

import "testing"

func TestOnlyKubectlReadsOtherLanguages(t *testing.T) {
	if err := Late(); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		args []string
		want bool
	}{
		{[]string{"/usr/bin/kubectl", "get", "pods"}, true},
		{[]string{"kemudi", "kubectl", "get", "pods"}, true},
		{[]string{"kemudi", "__complete", "kubectl", "get", ""}, true},
		{[]string{"kemudi", "server"}, false},
		{[]string{"kubelet"}, false},
		{nil, false},
	} {
		if got := kubectl(tc.args); got != tc.want {
			t.Errorf("%q may be kubectl: got %v, want %v", tc.args, got, tc.want)
		}
	}
	for _, tc := range []struct {
		all, messages, lang string
		want                bool
	}{
		{"", "", "", false},
		{"", "", "C.UTF-8", false},
		{"", "", "en_US.UTF-8", false},
		{"", "", "de_DE", false}, // as kubectl has it, without an encoding it is none
		{"", "", "de_DE.UTF-8", true},
		{"", "C.UTF-8", "de_DE.UTF-8", false},
		{"ja_JP.UTF-8", "C.UTF-8", "", true},
	} {
		env := map[string]string{"LC_ALL": tc.all, "LC_MESSAGES": tc.messages, "LANG": tc.lang}
		if got := foreign(func(name string) string { return env[name] }); got != tc.want {
			t.Errorf("%v is another language than English: got %v, want %v", env, got, tc.want)
		}
	}
}
