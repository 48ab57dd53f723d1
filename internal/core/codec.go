package core

import (
	"encoding/json"
	"reflect"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// Codec is engine.Codec. Nil: encoding/json.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, into any) error
}

// Encode encodes a payload, result, signal or frame. A []byte and a json.RawMessage are encoded already, and a struct{} has no
// bytes.
func Encode[T any](codec Codec, value T) ([]byte, error) {
	switch value := any(&value).(type) {
	case *[]byte:
		return *value, nil
	case *json.RawMessage:
		return *value, nil
	case *struct{}:
		return nil, nil
	}
	if codec == nil {
		return json.Marshal(value)
	}
	return codec.Marshal(value)
}

// Decode reverses [Encode]. The error is a [fferr.DecodeError] with kind and what.
func Decode[T any](codec Codec, kind, what string, data []byte) (T, error) {
	var value T
	switch into := any(&value).(type) {
	case *[]byte:
		*into = data
	case *json.RawMessage:
		*into = data
	case *struct{}:
	default:
		if len(data) == 0 {
			break
		}
		unmarshal := json.Unmarshal
		if codec != nil {
			unmarshal = codec.Unmarshal
		}
		if err := unmarshal(data, into); err != nil {
			var none T
			return none, &fferr.DecodeError{Kind: kind, What: what, Type: reflect.TypeFor[T]().String(), Err: err}
		}
	}
	return value, nil
}
