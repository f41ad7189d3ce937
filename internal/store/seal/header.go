package seal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of upstream's EncryptedObject, and of an entry of its annotations.
const (
	fieldData        = 1
	fieldKeyID       = 2
	fieldSource      = 3
	fieldAnnotations = 4
	fieldType        = 5

	entryName  = 1
	entryValue = 2
)

// identity is what of a header says which data key it means.
func (h *Header) identity() string {
	b := make([]byte, 0, 8+len(h.Source)+len(h.KeyID))
	b = append(b, byte(h.Type))
	b = appendPart(appendPart(b, h.Source), []byte(h.KeyID))
	for _, a := range h.Annotations {
		b = appendPart(appendPart(b, []byte(a.Name)), a.Value)
	}
	return string(b)
}

func appendPart(b, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

// appendTo appends the message of a header and an encrypted value.
func (h *Header) appendTo(b, data []byte) []byte {
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldData, protowire.BytesType), data)
	b = protowire.AppendString(protowire.AppendTag(b, fieldKeyID, protowire.BytesType), h.KeyID)
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldSource, protowire.BytesType), h.Source)
	for _, a := range h.Annotations {
		entry := protowire.AppendString(protowire.AppendTag(nil, entryName, protowire.BytesType), a.Name)
		entry = protowire.AppendBytes(protowire.AppendTag(entry, entryValue, protowire.BytesType), a.Value)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldAnnotations, protowire.BytesType), entry)
	}
	if h.Type != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldType, protowire.VarintType), h.Type)
	}
	return b
}

// parse reads such a message. What it returns shares b's memory.
func parse(b []byte) (h Header, data []byte, err error) {
	err = fields(b, func(number protowire.Number, typ protowire.Type, value []byte, n uint64) error {
		switch {
		case number == fieldData && typ == protowire.BytesType:
			data = value
		case number == fieldKeyID && typ == protowire.BytesType:
			h.KeyID = string(value)
		case number == fieldSource && typ == protowire.BytesType:
			h.Source = value
		case number == fieldType && typ == protowire.VarintType:
			h.Type = n
		case number == fieldAnnotations && typ == protowire.BytesType:
			return h.annotate(value)
		}
		return nil
	})
	switch {
	case err != nil:
		return Header{}, nil, err
	case len(data) == 0:
		return Header{}, nil, errors.New("encrypted data is empty")
	}
	h.Sort()
	return h, data, h.check()
}

// annotate takes in one annotation. Of two with one name the last counts.
func (h *Header) annotate(entry []byte) error {
	var a Annotation
	err := fields(entry, func(number protowire.Number, typ protowire.Type, value []byte, _ uint64) error {
		switch {
		case number == entryName && typ == protowire.BytesType:
			a.Name = string(value)
		case number == entryValue && typ == protowire.BytesType:
			a.Value = value
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range h.Annotations {
		if h.Annotations[i].Name == a.Name {
			h.Annotations[i] = a
			return nil
		}
	}
	h.Annotations = append(h.Annotations, a)
	return nil
}

// fields calls fn with each field of a message: with its bytes, or with its number.
func fields(b []byte, fn func(number protowire.Number, typ protowire.Type, value []byte, n uint64) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("read the encrypted object: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var value []byte
		var count uint64
		switch typ {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			count, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("read the encrypted object: %w", protowire.ParseError(n))
		}
		if err := fn(number, typ, value, count); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
