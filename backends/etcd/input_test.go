package etcd_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

func TestBadInput(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	s := must(etcd.New(client))(t)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(etcd.Store))

	_, err = etcd.New(&clientv3.Client{})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "clientv3.New")
	_, err = etcd.New(client, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	never := s.Guard(nil)
	require.Equal(t, never, s.Guard((*owner)(nil)), "a nil pointer is no ownership, and nothing is applied")

	inputtest.Options(t, map[string][]any{
		"WithPrefix": {etcd.WithPrefix, "p/"},
		"WithLogger": {etcd.WithLogger, zap.NewNop()},
	}, nil, map[string]string{"WithLogger(nil)": "the default"}, func(o etcd.Option) error {
		_, err := etcd.New(client, o)
		return err
	})
}

type owner struct{ name string }

func (o *owner) Name() string       { return o.name }
func (o *owner) Token() store.Token { return 1 }
