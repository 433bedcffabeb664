# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/copying"

# What the tracer sends, and when it does not.
class CopyChannelTest < MemscopeTest
  Channel = Memscope::Copy::Channel
  Failed = Memscope::Client::Failed

  def setup
    super
    @ours, @tracer = UNIXSocket.pair
    @ours.autoclose = false
    @channel = Channel.new(@ours.fileno, 4711, 60)
  end

  def teardown
    @tracer.close # first, or the channel waits for its last message
    @channel.close
    super
  end

  def test_values
    { "null" => nil, "true" => true, "1.5" => 1.5, "1180591620717411303424" => 2**70,
      '"\'text"' => "text", '"\'"' => "", '"\':x"' => ":x", '":name"' => :name, '"=\u00ffA"' => "\xFFA".b,
      '[":a",[1]]' => [:a, [1]], '{":a":1,"\'a":2,"#12":"\'é"}' => { a: 1, "a" => 2, 12 => "é" } }.each do |json, value|
      tracer_sends(:value, json)

      given = @channel.value("x")

      assert_equal [value, value.class], [given, given.class]
    end
  end

  # As the extension writes them, and as this decodes them.
  def test_values_of_the_extension
    value = [nil, :a, "b", "\xFF\x00".b, "é", 1.5, 2**70, { a: { "b" => 1 }, 3 => [] }, false]
    tracer_sends(:value, Memscope.const_get(:Native).copied(value.inspect))

    assert_equal value, @channel.value("x")
  end

  def test_values_without_a_type
    ['"x"', '""', '{"x":1}', '"#1x"'].each do |json|
      tracer_sends(:value, json)

      assert_raises(ArgumentError) { @channel.value("x") }
    end
  end

  def test_a_request
    tracer_sends(:value, "1")
    @channel.value("Memscope.x(é)")

    assert_equal [14, "Memscope.x(é)"], [@tracer.read(8).unpack1("Q"), @tracer.read(14).force_encoding("UTF-8")]
  end

  def test_a_message_in_parts
    bytes = FakeTracer.message(:ready, "pause_ns=12\nruby=3.4.1\nodd\n")
    bytes.each_char { |byte| @tracer.write(byte) }

    assert_equal({ "pause_ns" => "12", "ruby" => "3.4.1", "odd" => "" }, @channel.ready)
  end

  def test_a_file
    ["a" * 70_000, "", "b"].each { |part| tracer_sends(:file, part) }
    tracer_sends(:value, "1")
    parts = +""

    assert_equal 1, @channel.value("x") { |part| parts << part }
    assert_equal "#{'a' * 70_000}b", parts
  end

  def test_a_file_that_was_not_asked_for
    tracer_sends(:file, "a")

    assert_failed(/another answer than it was asked for/) { @channel.value("x") }
  end

  def test_messages_that_are_not_understood
    assert_failed(/could not answer: NameError: \?\[31mx\?/) { asked(:raised, "NameError: \e[31mx\u202e") }
    assert_failed(/another answer than/) { asked(:ended, "") }
    assert_failed(/is not JSON/) { asked(:value, "{") }
    assert_failed(/the copy of process 4711 has failed by signal 11/) { asked(:refused, "copy_failed\n4711\n11") }
  end

  def test_an_answer_without_end
    @tracer.write(FakeTracer.message(:value, "", 1 << 62))

    assert_failed(/is too long/) { @channel.value("x") }
  end

  def test_an_unknown_kind
    @tracer.write([99, 0, 0].pack("LLQ"))

    assert_failed(/another answer than/) { @channel.value("x") }
  end

  def test_a_tracer_that_ends
    @tracer.write(FakeTracer.message(:value, "1234")[0, 18])
    @tracer.close

    assert_failed(/the tracer of process 4711 has ended. The process itself goes on/) { @channel.value("x") }
    assert_empty @channel.close
  end

  def test_a_tracer_that_does_not_answer
    @channel.instance_variable_set(:@deadline, 0)

    assert_failed(/does not answer/) { @channel.value("x") }
  end

  # Also one that never stops sending.
  def test_a_file_without_end
    @channel.instance_variable_set(:@deadline, Memscope::Clock.now + 0.1)
    sender = Thread.new { loop { tracer_sends(:file, "a" * 1000) } }
    sender.report_on_exception = false

    assert_failed(/does not answer/) { @channel.value("x") { nil } }
  ensure
    sender.kill
  end

  def test_the_end
    tracer_sends(:ended, "copy_ms=2200\nreap_ns=1\n")

    assert_equal({ "copy_ms" => "2200", "reap_ns" => "1" }, @channel.close)
    assert_equal [0].pack("Q"), @tracer.read
    assert_empty @channel.close
  end

  private

  def tracer_sends(kind, bytes) = @tracer.write(FakeTracer.message(kind, bytes))

  def asked(kind, bytes)
    tracer_sends(kind, bytes)
    @channel.value("x")
  end

  def assert_failed(message, &) = assert_match(message, assert_raises(Failed, &).message)
end
