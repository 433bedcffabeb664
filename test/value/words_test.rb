# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/word_files"
require "tempfile"

# How Memscope::Words reads files of texts, and that all of them are as it expects.
class WordsReaderTest < MemscopeTest
  Words = Memscope.const_get(:Words)
  # rubocop:disable-next Style/FormatStringToken -- the form of the files
  SAMPLE = <<~WORDS
    # What an editor should know.
    plain
      one line
    long
      lines that are
      joined
    longer.plain
      %{count} of them, %{share}:
        memscope report
        memscope doctor
      and – in UTF-8

    # The last.
    last
      100 %%
  WORDS

  def words(text)
    Tempfile.create("some.words") do |file|
      file.write(text)
      file.close
      yield file.path
    end
  end

  def test_a_text_is_found_by_its_name
    words(SAMPLE) do |path|
      texts = Words.new(path)

      assert_equal ["one line", "lines that are joined"], [texts[:plain], texts["long"]]
      assert_equal "3 of them, 5 %:\nmemscope report\nmemscope doctor and – in UTF-8",
                   texts.fill(:"longer.plain", count: 3, share: "5 %")
      assert_equal "100 %", texts.fill(:last, {})
      assert_predicate texts[:plain], :frozen?
    end
  end

  def test_an_absent_text_or_figure_is_named
    words(SAMPLE) do |path|
      texts = Words.new(path)

      %i[absent on one the].each do |name|
        assert_equal "#{path} has no text #{name}", assert_raises(KeyError) { texts[name] }.message
      end
      assert_match(/share/, assert_raises(KeyError) { texts.fill(:"longer.plain", count: 1) }.message)
    end
  end

  def test_the_locale_does_not_matter
    encodings = { env: { "LC_ALL" => "C" }, ruby_args: ["-Eus-ascii:iso-8859-1"] }
    result = ChildProcess.run(<<~RUBY, requires: ["memscope"], **encodings)
      text = Memscope.const_get(:Reasons)::WORDS[:denied]
      puts text, text.encoding
    RUBY

    assert_equal "refused by the kernel\nUTF-8\n", result.out, result
  end

  def test_each_file_of_texts_is_well_formed_and_beside_a_file_that_reads_it
    refute_empty WordFiles::ALL
    WordFiles::ALL.each do |path|
      texts = Words.new(path)

      WordFiles.read(path).each { |name, lines| assert_equal lines.join(" ").squeeze(" "), flat(texts[name]), name }
      assert_path_exists reader(path), path
    end
  end

  # By its name, or by a part of it: other parts may be made from a Symbol. The tracer names the refusals of a copy.
  def test_each_text_is_named_where_it_is_used
    WordFiles::ALL.each do |path|
      next if path.end_with?("/reasons.words") # C names most of them: see reasons_test.rb

      readers = [*Dir["#{File.dirname(path)}/**/*.rb"],
                 *(Dir["#{ChildProcess::ROOT}/ext/memscope/**/*.c"] if path.end_with?("/copy.words"))]
      words = readers.flat_map { |file| File.read(file).scan(/\w+/) }.uniq

      assert_empty(WordFiles.read(path).keys.reject { |name| name.name.split(".").intersect?(words) }, path)
    end
  end

  # A malformed file is ours to mend: the line is named.
  def test_a_malformed_file_is_refused
    { "a\nb\n  c\n" => "2: a name without a text", "a\n" => "2: a name without a text",
      "  c\n" => "1: a text without a name", "a\n  b\na\n  c\n" => "3: a second text of this name",
      "a\n  b\n   c\n" => "3: neither a name, nor a text or a comment",
      "A b\n" => "1: neither a name, nor a text or a comment",
      "a\n  5 % of it\n" => "2: a per cent sign that stands for nothing: %% is one" }.each do |text, problem|
      words(text) do |path|
        assert_equal "#{path}:#{problem}", assert_raises(RuntimeError) { WordFiles.read(path) }.message
      end
    end
  end

  private

  # The Ruby file beside it, or one in its directory, that reads it.
  def reader(path)
    beside = path.sub(/words\z/, "rb")
    readers = { beside => "Words.beside(__FILE__)" } if File.exist?(beside)
    readers ||= Dir[File.join(File.dirname(path), "*.rb")].to_h { |file| [file, %("#{File.basename(path)}")] }
    readers.keys.find { |file| File.read(file).include?(readers[file]) }.to_s
  end

  def flat(text) = text.gsub(/\s+/, " ")
end
