package core

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// formatLabels prints labels or a selector of a map.
func formatLabels(m map[string]string) string { return orNone(labels.Set(m).String()) }

// servicePorts prints ports with their node ports: "80:30080/TCP".
func servicePorts(ports []corev1.ServicePort) string {
	texts := make([]string, len(ports))
	for i := range ports {
		texts[i] = fmt.Sprintf("%d/%s", ports[i].Port, ports[i].Protocol)
		if ports[i].NodePort > 0 {
			texts[i] = fmt.Sprintf("%d:%d/%s", ports[i].Port, ports[i].NodePort, ports[i].Protocol)
		}
	}
	return orNone(strings.Join(texts, ","))
}

func formatInt(n int32) string { return strconv.Itoa(int(n)) }
