package etcdstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
)

func TestBadInput(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	leases, err := etcd.New(client)
	require.NoError(t, err)
	s, err := etcdstore.New(client, leases)
	require.NoError(t, err)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(etcdstore.Store))
	for _, bad := range []struct {
		client *clientv3.Client
		leases *etcd.Store
	}{{nil, leases}, {&clientv3.Client{}, leases}, {client, nil}, {client, &etcd.Store{}}} {
		_, err := etcdstore.New(bad.client, bad.leases)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	inputtest.Options(t, map[string][]any{"WithPrefix": {etcdstore.WithPrefix, "p/"}}, nil, nil, func(o etcdstore.Option) error {
		_, err := etcdstore.New(client, leases, o)
		return err
	})
}
