package wire_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

type order struct {
	ID    string
	Items []string
}

type invoice struct{ Total int }

// plain writes orders as text that is not JSON.
type plain struct{ name string }

func (p plain) Name() string { return p.name }
func (plain) Marshal(v any) ([]byte, error) {
	return []byte("order:" + v.(*order).ID), nil
}
func (plain) Unmarshal(data []byte, v any) error {
	id, ok := strings.CutPrefix(string(data), "order:")
	if !ok {
		return errors.New("no order")
	}
	v.(*order).ID = id
	return nil
}

type panicking struct{}

func (panicking) Name() string                { return "panicking" }
func (panicking) Marshal(any) ([]byte, error) { panic("marshal") }
func (panicking) Unmarshal([]byte, any) error { panic("unmarshal") }

type embeds struct {
	*wrapperspb.StringValue
	More int
}

func roundTrip(t *testing.T, r *wire.Registry, msg any) any {
	t.Helper()
	name, codec, payload, err := r.Encode(msg, 0)
	require.NoError(t, err)
	got, err := r.Decode(name, codec, payload)
	require.NoError(t, err)
	return got
}

func TestValuesArriveAsValuesAndPointersAsPointers(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", nil))
	require.NoError(t, wire.Register[string](r, "text", nil))
	o := order{ID: "7", Items: []string{"a"}}
	require.Equal(t, o, roundTrip(t, r, o))
	got := roundTrip(t, r, &o)
	require.Equal(t, &o, got)
	require.NotSame(t, &o, got)
	require.Equal(t, "hello", roundTrip(t, r, "hello"))
}

func TestProtoMessagesNeedNoRegistration(t *testing.T) {
	m := &wire.Nack{Reason: wire.Reason_REASON_OVERFLOW, Name: "singleton/a", Type: "order", Detail: "full"}
	got := roundTrip(t, wire.NewRegistry(), m)
	require.IsType(t, m, got)
	require.True(t, proto.Equal(m, got.(*wire.Nack)))
}

type celsius struct{ degrees int }

func (c *celsius) MarshalJSON() ([]byte, error) { return []byte{byte('0' + c.degrees)}, nil }
func (c *celsius) UnmarshalJSON(b []byte) error { c.degrees = int(b[0] - '0'); return nil }

func TestMethodsOfThePointerEncodeValuesToo(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[celsius](r, "celsius", nil))
	require.Equal(t, celsius{7}, roundTrip(t, r, celsius{7}))
	require.Equal(t, &celsius{7}, roundTrip(t, r, &celsius{7}))
}

func TestACodecOfTheUser(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", plain{"plain"}))
	name, codec, payload, err := r.Encode(&order{ID: "9"}, 0)
	require.NoError(t, err)
	require.Equal(t, []any{"*order", "plain", "order:9"}, []any{name, codec, string(payload)})
	require.Equal(t, &order{ID: "9"}, roundTrip(t, r, &order{ID: "9"}))

	got, err := r.Decode("order", "json", []byte(`{"ID":"old"}`))
	require.NoError(t, err, "a type may move away from JSON")
	require.Equal(t, order{ID: "old"}, got)

	_, err = r.Decode("order", "other", nil)
	require.ErrorIs(t, err, wire.ErrUnknownType)
}

func TestAPanickingCodecIsContained(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", panicking{}))
	_, _, _, err := r.Encode(order{}, 0)
	require.ErrorIs(t, err, wire.ErrUnencodable)
	require.ErrorContains(t, err, "panicked: marshal")
	_, err = r.Decode("order", "panicking", nil)
	require.ErrorIs(t, err, wire.ErrUndecodable)
	require.ErrorContains(t, err, "panicked: unmarshal")
}

func TestUnencodable(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", nil))
	require.NoError(t, wire.Register[any2](r, "any", nil))
	for name, c := range map[string]struct {
		msg  any
		want error
	}{
		"nil":                     {nil, wire.ErrUnencodable},
		"nil pointer":             {(*order)(nil), wire.ErrUnencodable},
		"nil message":             {(*wire.Nack)(nil), wire.ErrUnencodable},
		"unregistered":            {invoice{}, wire.ErrUnknownType},
		"embeds a message":        {embeds{wrapperspb.String("x"), 1}, wire.ErrUnencodable},
		"embeds a nil message":    {embeds{}, wire.ErrUnencodable},
		"fails in its codec":      {any2{V: func() {}}, wire.ErrUnencodable},
		"not UTF-8":               {wrapperspb.String("\xff"), wire.ErrUnencodable},
		"pointer to pointer":      {new(*order), wire.ErrUnknownType},
		"unregistered basic type": {1, wire.ErrUnknownType},
	} {
		t.Run(name, func(t *testing.T) {
			typeName, codec, payload, err := r.Encode(c.msg, 0)
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, wire.ErrTooLarge)
			require.Empty(t, typeName+codec+string(payload))
		})
	}
}

type any2 struct{ V any }

func TestThePayloadIsBounded(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[string](r, "text", nil))
	_, _, payload, err := r.Encode(strings.Repeat("x", 98), 100) // and two quotes
	require.NoError(t, err)
	require.Len(t, payload, 100)
	_, _, _, err = r.Encode(strings.Repeat("x", 99), 100)
	require.ErrorIs(t, err, wire.ErrTooLarge)
	require.NotErrorIs(t, err, wire.ErrUnencodable)

	m := wrapperspb.String(strings.Repeat("x", 98)) // and two bytes of framing
	_, _, payload, err = r.Encode(m, 100)
	require.NoError(t, err)
	require.Len(t, payload, 100)
	_, _, _, err = r.Encode(m, 99)
	require.ErrorIs(t, err, wire.ErrTooLarge)
	require.NotErrorIs(t, err, wire.ErrUnencodable)

	_, _, _, err = r.Encode(strings.Repeat("x", wire.DefaultLimit-2), 0)
	require.NoError(t, err)
	_, _, _, err = r.Encode(strings.Repeat("x", wire.DefaultLimit-1), 0)
	require.ErrorIs(t, err, wire.ErrTooLarge)
}

func TestUndecodable(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", nil))
	for _, c := range []struct {
		typeName, codec, payload string
		want                     error
	}{
		{"invoice", "json", "{}", wire.ErrUnknownType},
		{"", "", "", wire.ErrUnknownType},
		{"*", "json", "", wire.ErrUnknownType},
		{"**order", "json", "{}", wire.ErrUnknownType},
		{"no.such.Message", "proto", "", wire.ErrUnknownType},
		{"order", "proto", "", wire.ErrUnknownType},
		{"order", "json", "", wire.ErrUndecodable},
		{"order", "json", "{} {}", wire.ErrUndecodable},
		{"*order", "json", `{"ID":7}`, wire.ErrUndecodable},
		{"holdfast.wire.v1.Nack", "proto", "\xff", wire.ErrUndecodable},
	} {
		got, err := r.Decode(c.typeName, c.codec, []byte(c.payload))
		require.ErrorIs(t, err, c.want, "%+v", c)
		require.Nil(t, got)
		require.NotEqual(t, wire.Reason_REASON_UNSPECIFIED, wire.ReasonOf(err))
	}
	require.Equal(t, wire.Reason_REASON_TOO_LARGE, wire.ReasonOf(wire.ErrTooLarge))
	require.Equal(t, wire.Reason_REASON_UNSPECIFIED, wire.ReasonOf(errors.New("other")))
}

func TestTheDecodedValueDoesNotReferToThePayload(t *testing.T) {
	r := wire.NewRegistry()
	name, codec, payload, err := r.Encode(&wire.Envelope{Payload: []byte("abc")}, 0)
	require.NoError(t, err)
	got, err := r.Decode(name, codec, payload)
	require.NoError(t, err)
	clear(payload)
	require.Equal(t, "abc", string(got.(*wire.Envelope).Payload))
}

type sealed struct{ _ int }

func TestRegistrationIsChecked(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", nil))
	require.NoError(t, wire.Register[order](r, "order", nil), "the same again changes nothing")
	require.NoError(t, wire.Register[order](r, "order", wire.JSON{}))
	long := strings.Repeat("x", wire.MaxTypeName)
	require.NoError(t, wire.Register[[7]int](r, long, nil))
	for bound, err := range map[string]error{
		"is taken by":                           wire.Register[invoice](r, "order", nil),
		"registered as \"order\"":               wire.Register[order](r, "bestellung", nil),
		"taken by wire_test.order":              wire.Register[order](r, "order", plain{"plain"}),
		"has 0 bytes, must have 1 to 256":       wire.Register[invoice](r, "", nil),
		"has 257 bytes":                         wire.Register[invoice](r, long+"x", nil),
		"not UTF-8":                             wire.Register[invoice](r, "\xff", nil),
		"control character":                     wire.Register[invoice](r, "a\nb", nil),
		"begins with '*'":                       wire.Register[invoice](r, "*invoice", nil),
		"is a pointer":                          wire.Register[*invoice](r, "invoice", nil),
		"is an interface":                       wire.Register[error](r, "invoice", nil),
		"needs no registration":                 wire.Register[wire.Nack](r, "nack", nil),
		"no JSON for it":                        wire.Register[func()](r, "f", nil),
		"no field is exported":                  wire.Register[sealed](r, "sealed", nil),
		"codec name \"json\" is taken":          wire.Register[invoice](r, "invoice", plain{"json"}),
		"codec name \"proto\" is taken":         wire.Register[invoice](r, "invoice", plain{"proto"}),
		"codec name has 0 bytes":                wire.Register[invoice](r, "invoice", plain{}),
		"codec name: it panicked: value method": wire.Register[invoice](r, "invoice", (*plain)(nil)),
	} {
		require.ErrorIs(t, err, lease.ErrInvalid, bound)
		require.ErrorContains(t, err, bound)
	}
	require.NoError(t, wire.Register[time.Time](r, "time", nil), "it writes its own JSON")
	require.NoError(t, wire.Register[struct{}](r, "nothing", nil))
	require.NoError(t, wire.Register[embeds](r, "embeds", nil), "embedding a message is not being one")
	got := roundTrip(t, r, embeds{wrapperspb.String("x"), 1}).(embeds)
	require.Equal(t, 1, got.More)
}

func TestTypesMayBeRegisteredWhileOthersAreUsed(t *testing.T) {
	r := wire.NewRegistry()
	require.NoError(t, wire.Register[order](r, "order", nil))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				_, _, _, err := r.Encode(order{}, 0)
				if err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			if err := wire.Register[invoice](r, "invoice", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, invoice{3}, roundTrip(t, r, invoice{3}))
}

func TestAddressesAndPIDs(t *testing.T) {
	require.Nil(t, wire.AddressOf(nil))
	require.Nil(t, (*wire.Address)(nil).PID())
	a := &wire.Address{Address: "n1:1", Id: "x", RequestId: 3}
	require.True(t, proto.Equal(a, wire.AddressOf(a.PID())))
}
