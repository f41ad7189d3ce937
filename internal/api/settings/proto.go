package settings

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/wire"
)

var _ wire.Proto = (*PodPreset)(nil)

// message is a part of a preset that knows its own protobuf form.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// field is a message with its number in the message around it.
type field struct {
	number protowire.Number
	value  message
}

// parts are the fields of the spec, in the order of their numbers.
func (s *PodPresetSpec) parts() []field {
	list := []field{{1, &s.Selector}}
	for i := range s.Env {
		list = append(list, field{2, &s.Env[i]})
	}
	for i := range s.EnvFrom {
		list = append(list, field{3, &s.EnvFrom[i]})
	}
	for i := range s.Volumes {
		list = append(list, field{4, &s.Volumes[i]})
	}
	for i := range s.VolumeMounts {
		list = append(list, field{5, &s.VolumeMounts[i]})
	}
	return list
}

// add makes room for one more field of a number, or says that there is none.
func (s *PodPresetSpec) add(number protowire.Number) message {
	switch number {
	case 1:
		return &s.Selector
	case 2:
		s.Env = append(s.Env, corev1.EnvVar{})
		return &s.Env[len(s.Env)-1]
	case 3:
		s.EnvFrom = append(s.EnvFrom, corev1.EnvFromSource{})
		return &s.EnvFrom[len(s.EnvFrom)-1]
	case 4:
		s.Volumes = append(s.Volumes, corev1.Volume{})
		return &s.Volumes[len(s.Volumes)-1]
	case 5:
		s.VolumeMounts = append(s.VolumeMounts, corev1.VolumeMount{})
		return &s.VolumeMounts[len(s.VolumeMounts)-1]
	}
	return nil
}

// Marshal returns the protobuf form, in the numbers that clients of the group know.
func (s *PodPresetSpec) Marshal() ([]byte, error) { return encode(s.parts()) }

// Unmarshal reads the protobuf form.
func (s *PodPresetSpec) Unmarshal(data []byte) error {
	*s = PodPresetSpec{}
	return decode(data, s.add)
}

// Marshal returns the protobuf form, in the numbers that clients of the group know.
func (p *PodPreset) Marshal() ([]byte, error) {
	return encode([]field{{1, &p.ObjectMeta}, {2, &p.Spec}})
}

// Size is the length of the protobuf form; 0 if it has none.
func (p *PodPreset) Size() int {
	data, err := p.Marshal()
	if err != nil {
		return 0
	}
	return len(data)
}

// MarshalToSizedBuffer writes the protobuf form to the end of dst.
func (p *PodPreset) MarshalToSizedBuffer(dst []byte) (int, error) {
	data, err := p.Marshal()
	if err != nil {
		return 0, err
	}
	if len(data) > len(dst) {
		return 0, fmt.Errorf("encode a PodPreset: has %d bytes, room for %d", len(data), len(dst))
	}
	return copy(dst[len(dst)-len(data):], data), nil
}

// Unmarshal reads the protobuf form.
func (p *PodPreset) Unmarshal(data []byte) error {
	*p = PodPreset{TypeMeta: p.TypeMeta}
	return decode(data, func(number protowire.Number) message {
		switch number {
		case 1:
			return &p.ObjectMeta
		case 2:
			return &p.Spec
		}
		return nil
	})
}

func encode(fields []field) ([]byte, error) {
	var out []byte
	for _, f := range fields {
		data, err := f.value.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", f.value, err)
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, f.number, protowire.BytesType), data)
	}
	return out, nil
}

// errCutOff says that a message ends within a field.
var errCutOff = errors.New("protobuf message is cut off")

// decode reads the fields of a message into what add returns for their numbers;
// those for which it returns nothing are passed over.
func decode(data []byte, add func(number protowire.Number) message) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errCutOff
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return errCutOff
		}
		value, _ := protowire.ConsumeBytes(data[:n])
		if data = data[n:]; kind != protowire.BytesType {
			continue
		}
		if into := add(number); into != nil {
			if err := into.Unmarshal(value); err != nil {
				return fmt.Errorf("decode %T: %w", into, err)
			}
		}
	}
	return nil
}
