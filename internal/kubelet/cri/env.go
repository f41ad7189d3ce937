package cri

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Objects finds what a container's environment refers to. The errors are shown
// to the user as they are.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
	// Services returns all services of a namespace.
	Services(namespace string) []*v1.Service
}

// IsMissing reports whether an error of Objects says that there is no such
// object; it is given so that this package need not know the API's errors.
type IsMissing func(error) bool

// Env makes the environment of a container: the user's variables in their
// order, over those of services.
func Env(in *ContainerInput) ([]*runtimeapi.KeyValue, error) {
	services := map[string]string{}
	if in.Objects != nil {
		services = serviceEnv(in.Pod, in.Objects)
	}
	e := environment{in: in, services: services, values: map[string]string{}}
	for i := range in.Container.EnvFrom {
		if err := e.from(&in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range in.Container.Env {
		if err := e.add(&in.Container.Env[i]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, ok := e.values[name]; !ok {
			e.set(name, services[name])
		}
	}
	out := make([]*runtimeapi.KeyValue, len(e.order))
	for i, name := range e.order {
		out[i] = &runtimeapi.KeyValue{Key: name, Value: []byte(e.values[name])}
	}
	return out, nil
}

// environment is a growing list of variables.
type environment struct {
	in       *ContainerInput
	services map[string]string
	values   map[string]string
	order    []string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.order = append(e.order, name)
	}
	e.values[name] = value
}

// lookup resolves $(NAME): variables set before win over those of services.
func (e *environment) lookup(name string) (string, bool) {
	if v, ok := e.values[name]; ok {
		return v, true
	}
	v, ok := e.services[name]
	return v, ok
}

func (e *environment) from(f *v1.EnvFromSource) error {
	data := map[string]string{}
	switch {
	case f.ConfigMapRef != nil:
		cm, err := e.in.configMap(f.ConfigMapRef.Name, f.ConfigMapRef.Optional)
		if err != nil {
			return err
		}
		if cm != nil {
			data = cm.Data
		}
	case f.SecretRef != nil:
		s, err := e.in.secret(f.SecretRef.Name, f.SecretRef.Optional)
		if err != nil {
			return err
		}
		if s != nil {
			for k, v := range s.Data {
				data[k] = string(v)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(data)) {
		e.set(f.Prefix+k, data[k])
	}
	return nil
}

func (e *environment) add(v *v1.EnvVar) error {
	if v.ValueFrom == nil {
		e.set(v.Name, Expand(v.Value, e.lookup))
		return nil
	}
	value, ok, err := e.in.valueFrom(v.ValueFrom)
	if err != nil || !ok {
		return err
	}
	e.set(v.Name, value)
	return nil
}

// valueFrom reads a variable's source; ok is false if it is optional and not there.
func (in *ContainerInput) valueFrom(src *v1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case src.FieldRef != nil:
		value, err = in.field(src.FieldRef.FieldPath)
		return value, err == nil, err
	case src.ResourceFieldRef != nil:
		value, err = in.resourceField(src.ResourceFieldRef)
		return value, err == nil, err
	case src.ConfigMapKeyRef != nil:
		ref := src.ConfigMapKeyRef
		cm, err := in.configMap(ref.Name, ref.Optional)
		if err != nil || cm == nil {
			return "", false, err
		}
		if value, ok = cm.Data[ref.Key]; !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case src.SecretKeyRef != nil:
		ref := src.SecretKeyRef
		s, err := in.secret(ref.Name, ref.Optional)
		if err != nil || s == nil {
			return "", false, err
		}
		data, ok := s.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
		}
		return string(data), ok, nil
	case src.FileKeyRef != nil:
		return in.fileKey(src.FileKeyRef)
	}
	return "", false, fmt.Errorf("unknown source of an environment variable")
}

func (in *ContainerInput) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	cm, err := in.Objects.ConfigMap(in.Pod.Namespace, name)
	if err != nil && isTrue(optional) && in.IsMissing(err) {
		return nil, nil
	}
	return cm, err
}

func (in *ContainerInput) secret(name string, optional *bool) (*v1.Secret, error) {
	s, err := in.Objects.Secret(in.Pod.Namespace, name)
	if err != nil && isTrue(optional) && in.IsMissing(err) {
		return nil, nil
	}
	return s, err
}

func isTrue(b *bool) bool { return b != nil && *b }

// serviceEnv are the variables of the services that a pod can see, in the
// syntax of Docker links.
func serviceEnv(pod *v1.Pod, objects Objects) map[string]string {
	visible := map[string]*v1.Service{}
	for _, s := range objects.Services(v1.NamespaceDefault) {
		if s.Name == "kubernetes" {
			visible[s.Name] = s
		}
	}
	if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
		for _, s := range objects.Services(pod.Namespace) {
			visible[s.Name] = s
		}
	}
	env := map[string]string{}
	for _, s := range visible {
		if ip := s.Spec.ClusterIP; ip != "" && ip != v1.ClusterIPNone && len(s.Spec.Ports) > 0 {
			addServiceEnv(env, s)
		}
	}
	return env
}

func addServiceEnv(env map[string]string, s *v1.Service) {
	ip := s.Spec.ClusterIP
	name := variable(s.Name)
	env[name+"_SERVICE_HOST"] = ip
	env[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			env[name+"_SERVICE_PORT_"+variable(p.Name)] = port
		}
		proto := string(p.Protocol)
		if proto == "" {
			proto = "TCP"
		}
		url := strings.ToLower(proto) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			env[name+"_PORT"] = url
		}
		prefix := name + "_PORT_" + port + "_" + strings.ToUpper(proto)
		env[prefix] = url
		env[prefix+"_PROTO"] = strings.ToLower(proto)
		env[prefix+"_PORT"] = port
		env[prefix+"_ADDR"] = ip
	}
}

func variable(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

// Expand replaces $(NAME) by the variable's value; a name that is not known
// stays as it is, and $$ is a plain dollar sign.
func Expand(s string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		rest := s[i+1:]
		switch {
		case rest[0] == '$':
			b.WriteByte('$')
			s = rest[1:]
		case rest[0] == '(' && strings.IndexByte(rest, ')') > 0:
			end := strings.IndexByte(rest, ')')
			if v, ok := lookup(rest[1:end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$" + rest[:end+1])
			}
			s = rest[end+1:]
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}
