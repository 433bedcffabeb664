# frozen_string_literal: true

require_relative "../test_helper"
require "tempfile"
require "memscope/value/loader"
require_relative "../../ext/memscope/field_tables"

class FieldTableTest < MemscopeTest
  TABLE = <<~'FIELDS'
    FieldTableTest::Order < Record
        What a customer asked for: two words, and → a letter that is not ASCII.
      name string identity
        as printed
      state symbol? one_of=open,paid,\
            sent
      # Money
      paid? boolean?

      cents integer one_of=1,5 sparse
        [Integer] a coin
          further indented
      #
      counts hash counters=made,sent
      lines [FieldTableTest::Order::Line] filled parts
      first FieldTableTest::Order::Line?

    FieldTableTest::Order::Line < Record
      bytes bytes
  FIELDS

  Tempfile.create("order") do |file|
    file.write(TABLE)
    file.close
    Memscope.const_set(:FieldTableTest, self)
    Memscope::FieldTable.declare(file.path)
  ensure
    Memscope.send(:remove_const, :FieldTableTest)
  end

  def test_records_and_their_names
    assert_equal [Memscope::Record, Memscope::Record], [Order, Order::Line].map(&:superclass)
    assert_equal %i[name state paid cents counts lines first], Order.fields.map(&:name)
    assert_equal :name, Order.identity
  end

  def test_types
    types = Order.fields.to_h { |field| [field.name, [field.type, field.nullable]] }

    assert_equal({ name: [:string, false], state: [:symbol, true], paid: [:boolean, true], cents: [:integer, false],
                   counts: [:hash, false], lines: [[Order::Line], false], first: [Order::Line, true] }, types)
  end

  def test_options
    _name, state, _paid, cents, counts, lines, = Order.fields

    assert_equal %i[open paid sent], Order.declared(:state).one_of
    assert_equal [[1, 5], true, false], [cents.one_of, cents.sparse, state.sparse]
    assert_equal [%i[made sent], nil], [counts.counters, lines.counters]
    assert_equal [true, false], [lines.filled, counts.filled]
  end

  def test_a_record_of_the_table
    order = Order.capture({ name: "a", paid: true, lines: [{ bytes: 3 }] })

    assert_predicate order, :paid?
    assert_equal 3, order.lines.first.bytes
    assert_equal 5, Order.from_h({ **order.to_h, cents: 5, counts: {} }).cents
  end

  # What is made from the tables has read them with their documentation.
  def test_tables_are_read_alike_with_their_documentation
    FieldTables.sections.each do |section|
      record = Memscope.const_get(section.name)

      assert_equal record.own_fields.map { |field| field.reader.name }, section.rows.map(&:name), section.name
      assert_equal record.own_fields.map(&:nullable), section.rows.map(&:nullable), section.name
    end
  end

  # Ruby would take any other word for a type too.
  def test_the_types_and_options_of_all_tables
    types = [*Memscope::Loader.const_get(:SCALARS).keys, :sentences, :tables].map(&:name)
    options = %w[one_of counters sparse filled identity together parts decisive by_hand interned rounded from]
    FieldTables.sections.flat_map(&:rows).each do |row|
      assert_includes types, row.type unless row.type.match?(/\A\[?[A-Z]/)

      assert_empty row.options.keys - options, row.name
    end
  end

  def test_documentation
    Tempfile.create("order") do |file|
      file.write(TABLE)
      file.close
      order, line = FieldTables.read(file.path)

      assert_match(/\A {4}What a customer .*→/, order.doc)
      assert_equal ["    as printed\n", "", "", "    [Integer] a coin\n      further indented\n"],
                   order.rows.first(4).map(&:doc)
      assert_equal [nil, nil, "Money", "Money", nil], order.rows.first(5).map(&:group)
      assert_equal({ "one_of" => "open,paid,sent" }, order.rows[1].options)
      assert_equal ["bytes"], line.rows.map(&:name)
    end
  end
end
