package remoting_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

func TestConfigure(t *testing.T) {
	for _, c := range []struct {
		host       string
		port       int
		advertised string
		listen     string
		want       string
	}{
		{"127.0.0.1", 8080, "", "127.0.0.1:8080", ""},
		{"node-1.example", 0, "", "node-1.example:0", ""},
		{"::1", 8080, "", "[::1]:8080", ""},
		{"fe80::1%eth0", 8080, "", "[fe80::1%eth0]:8080", ""},
		{"", 8080, "node-1.example", ":8080", "node-1.example:8080"},
		{"0.0.0.0", 0, "10.0.0.7:9090", "0.0.0.0:0", "10.0.0.7:9090"},
		{"::", 8080, "[2001:db8::7]:9090", "[::]:8080", "[2001:db8::7]:9090"},
		{"::", 8080, "2001:db8::7", "[::]:8080", "[2001:db8::7]:8080"},
		{"::", 8080, "[2001:db8::7]", "[::]:8080", "[2001:db8::7]:8080"},
	} {
		opts := []remoting.Option{remoting.WithPlaintext()}
		if c.advertised != "" {
			opts = append(opts, remoting.WithAdvertisedHost(c.advertised))
		}
		config := must(remoting.Configure(c.host, c.port, opts...))(t)
		require.Equal(t, c.listen, config.Address())
		require.Equal(t, c.want, config.AdvertisedHost)
	}
}

func TestABatchOfTheLargestMessagesFits(t *testing.T) {
	for size, batch := range map[int]int{
		256 << 10:                      256,
		1 << 20:                        64,
		remoting.DefaultMaxMessageSize: 16,
		64 << 20:                       1,
	} {
		config, err := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext(), remoting.WithMaxMessageSize(size))
		require.NoError(t, err)
		require.Equal(t, batch, config.EndpointWriterBatchSize)
		require.Equal(t, 1024, config.EndpointWriterQueueSize)
	}
}

func TestConfigureNamesWhatIsWrong(t *testing.T) {
	cert := []tls.Certificate{{}}
	pool := x509.NewCertPool()
	server := func() *tls.Config {
		return &tls.Config{Certificates: cert, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	}
	client := func() *tls.Config { return &tls.Config{Certificates: cert, RootCAs: pool} }
	must(remoting.Configure("127.0.0.1", 0, remoting.WithTLS(server(), client())))(t)

	inputtest.Options(t, map[string][]any{
		"WithAdvertisedHost": {remoting.WithAdvertisedHost, "h:1"},
		"WithMaxMessageSize": {remoting.WithMaxMessageSize, 1 << 20},
		"WithTLS":            {remoting.WithTLS, server(), client()},
		"WithPlaintext":      {remoting.WithPlaintext},
		"WithPeerCheck":      {remoting.WithPeerCheck, remoting.PeerCheck(func(*x509.Certificate, string) error { return nil })},
	}, nil, nil, func(o remoting.Option) error {
		_, err := remoting.Configure("127.0.0.1", 0, o)
		if err != nil && strings.Contains(err.Error(), "neither WithTLS nor WithPlaintext") {
			_, err = remoting.Configure("127.0.0.1", 0, o, remoting.WithTLS(server(), client()))
		}
		return err
	})

	optional, anyone, careless := server(), server(), client()
	optional.ClientAuth = tls.VerifyClientCertIfGiven
	anyone.ClientCAs = nil
	careless.InsecureSkipVerify = true
	adv := remoting.WithAdvertisedHost
	for _, c := range []struct {
		says string
		host string
		port int
		opt  remoting.Option
	}{
		{"port: invalid: -1, must be 0 to 65535", "h", -1, adv("h:1")},
		{"port: invalid: 65536, must be 0 to 65535", "h", 65536, adv("h:1")},
		{"stands for all interfaces", "", 1, remoting.WithMaxMessageSize(1 << 20)},
		{"stands for all interfaces", "0.0.0.0", 1, remoting.WithMaxMessageSize(1 << 20)},
		{"stands for all interfaces", "::", 1, remoting.WithMaxMessageSize(1 << 20)},
		{"is no host name or address", "a b", 1, adv("h:1")},
		{"is no host name or address", "[::1]", 1, adv("h:1")},
		{"a port has no place in it", "h:80", 1, adv("h:1")},
		{"254 bytes, at most 253", string(make([]byte, 254)), 1, adv("h:1")},
		{`port "0" of "h", must be 1 to 65535`, "h", 0, adv("h")},
		{`port "x" of "h:x"`, "h", 1, adv("h:x")},
		{"names no host", "h", 1, adv("")},
		{"names no host", "h", 1, adv("0.0.0.0:80")},
		{`port "//h" of "http://h"`, "h", 1, adv("http://h")},
		{"is no host name or address", "h", 1, adv("a/b")},
		{"maximum message size: invalid: 262143 bytes, must be 262144 to 67108864", "h", 1, remoting.WithMaxMessageSize(256<<10 - 1)},
		{"maximum message size: invalid: 67108865 bytes", "h", 1, remoting.WithMaxMessageSize(64<<20 + 1)},
		{"option: invalid: nil", "h", 1, nil},
	} {
		refused(t, c.says, c.host, c.port, remoting.WithPlaintext(), c.opt)
	}
	for _, c := range []struct {
		says string
		opt  remoting.Option
	}{
		{"server TLS: invalid: nil", remoting.WithTLS(nil, client())},
		{"client TLS: invalid: nil", remoting.WithTLS(server(), nil)},
		{"server TLS: invalid: has no certificate", remoting.WithTLS(&tls.Config{}, client())},
		{"ClientAuth is VerifyClientCertIfGiven, must be RequireAndVerifyClientCert", remoting.WithTLS(optional, client())},
		{"has no ClientCAs", remoting.WithTLS(anyone, client())},
		{"client TLS: invalid: has no certificate", remoting.WithTLS(server(), &tls.Config{})},
		{"peer check: invalid: nil", remoting.WithPeerCheck(nil)},
		{"InsecureSkipVerify", remoting.WithTLS(server(), careless)},
	} {
		refused(t, c.says, "h", 1, c.opt)
	}
}

func refused(t *testing.T, says, host string, port int, opts ...remoting.Option) {
	t.Helper()
	config, err := remoting.Configure(host, port, opts...)
	require.ErrorIs(t, err, lease.ErrInvalid, says)
	require.ErrorContains(t, err, says)
	require.Nil(t, config)
}

// A node that was given no certificates by mistake must not be open to everybody.
func TestPlaintextIsAskedForByName(t *testing.T) {
	refused(t, "neither WithTLS nor WithPlaintext", "127.0.0.1", 0)
	refused(t, "both WithTLS and WithPlaintext", "127.0.0.1", 0, remoting.WithPlaintext(), remoting.WithTLS(&tls.Config{}, &tls.Config{}))
	refused(t, "no certificates with WithPlaintext", "127.0.0.1", 0, remoting.WithPlaintext(),
		remoting.WithPeerCheck(func(*x509.Certificate, string) error { return nil }))
	must(remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext()))(t)
}

func TestStartChecksBeforeItChangesAnything(t *testing.T) {
	config := must(remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext()))(t)
	fresh := actor.NewActorSystem(remoting.LogTo(nil))
	_, err := remoting.Start(nil, config)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = remoting.Start(fresh, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = remoting.Start(fresh, remote.Configure("127.0.0.1", 0))
	require.ErrorContains(t, err, "not from Configure")

	must(fresh.Root.SpawnNamed(actor.PropsFromFunc(func(actor.Context) {}), "early"))(t)
	_, err = remoting.Start(fresh, config)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, `"early" was spawned before Start`)

	joined := actor.NewActorSystem(remoting.LogTo(nil))
	memnet.New().Join(joined, "n1")
	_, err = remoting.Start(joined, config)
	require.ErrorContains(t, err, "has the address n1 already")
	require.Equal(t, wire.DefaultLimit, wire.PayloadLimit(joined))
}

func TestTheActorSystemLogsToZap(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	system := actor.NewActorSystem(remoting.LogTo(zap.New(core)))
	require.Eventually(t, func() bool { return logs.Len() == 1 }, deadline, time.Millisecond)
	line := logs.All()[0]
	require.Equal(t, "protoactor", line.LoggerName)
	require.Equal(t, system.ID, line.ContextMap()["system"])
}

type parcel struct{ Weight int }

func TestRegisterMakesATypeKnownToTheProcess(t *testing.T) {
	require.NoError(t, remoting.Register[parcel]("parcel"))
	require.NoError(t, remoting.Register[parcel]("parcel"), "again")
	require.ErrorIs(t, remoting.Register[int]("parcel"), lease.ErrInvalid)
	require.ErrorIs(t, remoting.Register[int]("int", remoting.WithCodec(badCodec{})), lease.ErrInvalid)
	inputtest.Options(t, map[string][]any{"WithCodec": {remoting.WithCodec, goodCodec{}}}, []any{(*badCodec)(nil)}, nil,
		func(o remoting.RegisterOption) error { return remoting.Register[label]("label", o) })
	require.ErrorIs(t, remoting.Register[parcel]("parcel", nil), lease.ErrInvalid)
	name, codec, payload, err := wire.Default.Encode(&parcel{3}, 0)
	require.NoError(t, err)
	got := must(wire.Default.Decode(name, codec, payload))(t)
	require.Equal(t, &parcel{3}, got)
	_, _, _, err = wire.Default.Encode(1, 0)
	require.ErrorIs(t, err, wire.ErrUnknownType)
}

type label struct{}

type goodCodec struct{ remoting.Codec }

func (goodCodec) Name() string { return "good" }

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(remoting.Node))
	require.Equal(t, wire.PayloadLimit(actor.NewActorSystem(remoting.LogTo(nil))), wire.PayloadLimit(nil))
}

type badCodec struct{ remoting.Codec }

func (badCodec) Name() string { return "" }
