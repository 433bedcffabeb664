# frozen_string_literal: true

module Memscope
  # The texts that people read, in a file beside the Ruby file that uses them: reasons.words beside reasons.rb.
  #
  #   # Comments, like names of texts, begin at the margin.
  #   trimmable.title
  #     %{bytes} is free inside malloc; %{outcome}
  #
  # A text is indented by two spaces. It continues on the next lines, which are joined by spaces. A line indented by
  # four stays a line of its own. %{bytes} stands for a figure, %s for an argument by its order, %% for a per cent sign.
  #
  # The file stays one String, in which a text is searched: a process that loads memscope keeps no object for each.
  # @api private
  class Words
    # Where a text ends: the next line is not indented.
    LAST = /\n(?! )/

    # @return [Words] the texts of the file beside it
    def self.beside(path) = new("#{path.delete_suffix('.rb')}.words")

    def initialize(path)
      @path = -path
      @text = "\n#{File.binread(path)}".force_encoding(Encoding::UTF_8).freeze
      freeze
    end

    # @return [String] the text as it is in the file, frozen
    # @raise [KeyError] if there is none of that name
    def [](name)
      start = @text.index("\n#{name}\n  ") or raise KeyError, "#{@path} has no text #{name}"
      start += name.length + 4
      @text[start...@text.index(LAST, start)].gsub(/\n {2}(?! )/, " ").gsub(/\n {4}/, "\n").freeze
    end

    # @return [Boolean] whether there is a text of that name
    def key?(name) = @text.include?("\n#{name}\n  ")

    # @return [String] the text with these figures
    # @raise [KeyError] if there is no such text, or no such figure
    def fill(name, figures)
      text = self[name]
      text.include?("%") ? format(text, figures).freeze : text
    end
  end
  private_constant :Words
end
