# frozen_string_literal: true

require_relative "../test_helper"

class RecordTest < MemscopeTest
  class Note < Memscope::Record
    field :note, :string, false
    field :read?, :boolean, true
    field :at, :time, true, together: true
    field :size, :count, true, sparse: true, together: true
  end

  def test_a_frozen_body_stays_as_it_was
    body = { note: +"text" }.freeze
    note = Class.new(Memscope::Record) { field :note, :string, true }.capture(body).note

    assert_predicate note, :frozen?
    refute_predicate body[:note], :frozen?
  end

  def test_readers
    note = Note.capture({ note: "a", read: true, at: 1_500, size: nil })

    assert_equal ["a", true, Time.at(1.5), nil], [note.note, note.read?, note.at, note.size]
    assert_predicate note.at, :utc?
  end

  def test_a_round_trip
    note = Note.capture({ note: "a", read: false, at: 1_500, size: 3 })

    assert_equal({ note: "a", read: false, at: "1970-01-01T00:00:01.500Z", size: 3 }, note.to_h)
    assert_equal note, Note.from_h(note.to_h)
    refute_includes Note.capture({ note: "a" }).to_h, :size
  end

  def test_fields_that_are_known_together
    error = assert_raises(Memscope::Invalid) { Note.from_h({ note: "a", size: 3 }) }

    assert_equal ["at", "nil", "a value, as for size"], [error.argument, error.given, error.allowed]
  end
end
