// Package dynamodb keeps leases in a table of DynamoDB, written to be read: it makes observed.Objects of
// items, and package observed makes a store of these.
//
//	objects, err := dynamodb.New(client, "leases")
//	store, err := observed.New(objects)
//
// The table has a partition key "part" and a sort key "key", both strings:
//
//	aws dynamodb create-table --table-name leases --billing-mode PAY_PER_REQUEST \
//	    --attribute-definitions AttributeName=part,AttributeType=S AttributeName=key,AttributeType=S \
//	    --key-schema AttributeName=part,KeyType=HASH AttributeName=key,KeyType=RANGE
//
// All items are in one partition, so that one consistent query lists them: 1000 writes a second, by
// DynamoDB's bounds, serve some 2000 processes at the default TTL. No clock of DynamoDB is asked: a
// process that waits for a name observes its holder's item.
package dynamodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
)

// part is the partition of all items.
const part = "holdfast"

// Objects are the items of one table. They are safe for concurrent use.
type Objects struct {
	client *dynamodb.Client
	table  string
}

var (
	_ observed.Objects = (*Objects)(nil)
	_ observed.Limited = (*Objects)(nil)
)

// New returns the objects of a table. It sends nothing; an error is store.ErrInvalid.
func New(client *dynamodb.Client, table string) (*Objects, error) {
	if client == nil || table == "" {
		return nil, fmt.Errorf("dynamodb.New: %w: the client and the table's name must be set", store.ErrInvalid)
	}
	return &Objects{client, table}, nil
}

// Limits implements observed.Limited, by the bounds of a sort key and of an item.
func (o *Objects) Limits() store.Limits {
	return store.Limits{Name: "dynamodb", MaxMetadata: 32 << 10, CheckName: func(name string) error {
		if n := len(observed.Key(name)); n > 1024 {
			return fmt.Errorf("its key has %d bytes, at most 1024", n)
		}
		return nil
	}}
}

// once switches the client's own retries off: one that comes after an attempt that was applied would be
// refused by it, and that would look like another's doing. The Keeper repeats what fails.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func (o *Objects) key(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"part": text(part), "key": text(key)}
}

// Get implements observed.Objects.
func (o *Objects) Get(ctx context.Context, key string) (observed.Object, bool, error) {
	got, err := o.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &o.table, Key: o.key(key), ConsistentRead: aws.Bool(true)}, once)
	if err != nil || got.Item == nil {
		return observed.Object{}, false, denied(err)
	}
	return object(got.Item), true, nil
}

// Put implements observed.Objects: one conditional write. Versions are random, so that none comes twice.
func (o *Objects) Put(ctx context.Context, key string, value []byte, ifVersion string) (string, bool, error) {
	version, item := rand.Text(), o.key(key)
	item["version"], item["value"] = text(version), &types.AttributeValueMemberB{Value: value}
	put := &dynamodb.PutItemInput{TableName: &o.table, Item: item}
	if put.ConditionExpression, put.ExpressionAttributeNames, put.ExpressionAttributeValues = unchanged(ifVersion); ifVersion == "" {
		put.ConditionExpression, put.ExpressionAttributeValues = aws.String("attribute_not_exists(#v)"), nil
	}
	_, err := o.client.PutItem(ctx, put, once)
	ok, err := decided(err)
	return version, ok, err
}

// Delete implements observed.Objects.
func (o *Objects) Delete(ctx context.Context, key, ifVersion string) (bool, error) {
	del := &dynamodb.DeleteItemInput{TableName: &o.table, Key: o.key(key)}
	del.ConditionExpression, del.ExpressionAttributeNames, del.ExpressionAttributeValues = unchanged(ifVersion)
	_, err := o.client.DeleteItem(ctx, del, once)
	return decided(err)
}

// unchanged is the condition that an item has that version.
func unchanged(version string) (condition *string, names map[string]string, values map[string]types.AttributeValue) {
	return aws.String("#v = :v"), map[string]string{"#v": "version"}, map[string]types.AttributeValue{":v": text(version)}
}

// decided is the outcome of a conditional write: a condition that does not hold is a sure refusal, any
// other error is none.
func decided(err error) (ok bool, _ error) {
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, denied(err)
}

// List implements observed.Objects.
func (o *Objects) List(ctx context.Context, prefix string) iter.Seq2[observed.Object, error] {
	query := &dynamodb.QueryInput{
		TableName: &o.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("#p = :p"),
		ExpressionAttributeNames:  map[string]string{"#p": "part"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":p": text(part)},
	}
	if prefix != "" {
		query.KeyConditionExpression = aws.String("#p = :p and begins_with(#k, :k)")
		query.ExpressionAttributeNames["#k"], query.ExpressionAttributeValues[":k"] = "key", text(prefix)
	}
	return func(yield func(observed.Object, error) bool) {
		for pages := dynamodb.NewQueryPaginator(o.client, query); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx, once)
			if err != nil {
				yield(observed.Object{}, denied(err))
				return
			}
			for _, item := range page.Items {
				if !yield(object(item), nil) {
					return
				}
			}
		}
	}
}

// object is what stands in an item. What another program put there has no version, and is no record.
func object(item map[string]types.AttributeValue) (o observed.Object) {
	if key, ok := item["key"].(*types.AttributeValueMemberS); ok {
		o.Key = key.Value
	}
	if version, ok := item["version"].(*types.AttributeValueMemberS); ok {
		o.Version = version.Value
	}
	if value, ok := item["value"].(*types.AttributeValueMemberB); ok {
		o.Value = value.Value
	}
	return o
}

// denied makes of what an operator has to mend a store.ErrDenied.
func denied(err error) error {
	var told smithy.APIError
	if errors.As(err, &told) {
		switch told.ErrorCode() {
		case "AccessDeniedException", "ResourceNotFoundException", "UnrecognizedClientException":
			return fmt.Errorf("%w: %w", store.ErrDenied, err)
		}
	}
	return err
}
